"""Files to lock in a folder that all users of a machine share. It opens with suspicion, and knows nothing of cards.

Anybody may add a file there, so neither the folder nor a file is followed through somebody else's link, and what
is opened has to be a plain file with one name. Another user's file can not be opened for writing in every case, but
`flock` needs no more than a descriptor for reading.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pytest_cudaboot.errors import LeaseError

VARIABLE = "CUDABOOT_LEASE_DIR"
NAME = "cudaboot-leases"
PARENTS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - a place that all users share is the point
ADVICE = f"name a folder that all users of these cards can write to with {VARIABLE}"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A planted FIFO must not make the open wait.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_ATTEMPTS = 1000
_NOT_FOR_WRITING = (errno.EACCES, errno.EPERM, errno.EROFS)
_FREE_FOR_ALL = stat.S_IWOTH | stat.S_ISVTX


def default_folder(parents: tuple[Path, ...] = PARENTS) -> Path:
    """The machine's own place, the same for each of its users; containers share it only if told."""
    for parent in parents:
        with contextlib.suppress(OSError):
            if parent.stat().st_mode & _FREE_FOR_ALL == _FREE_FOR_ALL:
                return parent / NAME
    raise LeaseError(f"none of {', '.join(map(str, parents))} is open to all users; {ADVICE}")


@contextlib.contextmanager
def folder(path: Path, *, create: bool = True) -> Iterator[int]:
    """A descriptor of the folder.

    :param create: make it if it is missing, open to all users.
    :raises FileNotFoundError: if it is missing, and was not to be made.
    :raises LeaseError: if it can not be used, or not be trusted.
    """
    if create:
        _make(path)
    descriptor = _trusted(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def existing(directory: int, name: str) -> int | None:
    """A descriptor of a lock file, for writing where that is allowed; None if there is none.

    :raises LeaseError: if what is there is no lock file.
    """
    try:
        descriptor = _opened(directory, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise LeaseError(f"can not open lock file {_path(directory, name)!r}: {why}; {ADVICE}") from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    if status.st_nlink == 0:
        return None
    raise LeaseError(f"lock file {_path(directory, name)!r} is no plain file with one name; remove it")


def take(directory: int, name: str, *, shared: bool = False) -> tuple[int, bool]:
    """Open a lock file, and lock it if that can be done at once.

    :returns: its descriptor, and whether it is locked now.
    """
    for _ in range(_ATTEMPTS):
        descriptor = existing(directory, name)
        if descriptor is None:
            descriptor = _new(directory, name)
        if descriptor is None:
            continue
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            locked = lock(descriptor, shared=shared)
            # A lock on a file that somebody has removed keeps nobody out.
            if not locked or _current(directory, name, descriptor):
                undo.pop_all()
                return descriptor, locked
    raise LeaseError(f"lock file {_path(directory, name)!r} comes and goes; {ADVICE}")


def lock(descriptor: int, *, shared: bool = False) -> bool:
    """Whether the lock was to be had at once."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LeaseError(
            f"{_where(descriptor)!r} can not be locked ({error.strerror}), as on some network shares; {ADVICE}"
        ) from error
    return True


def unlock(descriptor: int) -> None:
    """Let go of the lock, for whoever inherited the descriptor as well, and of the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def write(descriptor: int, text: str) -> None:
    """Leave a text for others. It is a courtesy: a file that may not be written, or a full disk, costs no lock."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def read(descriptor: int) -> str:
    return os.pread(descriptor, 4096, 0).decode(errors="replace")


def _make(path: Path) -> None:
    try:
        with _all_modes(), contextlib.suppress(FileExistsError):
            path.mkdir(0o1777)
    except OSError as error:
        raise LeaseError(
            f"can not make the lease folder {str(path)!r} ({error.strerror}); {ADVICE}"
        ) from error


def _trusted(path: Path) -> int:
    try:
        entry = path.lstat()
        if stat.S_ISLNK(entry.st_mode) and entry.st_uid not in (0, os.geteuid()):
            raise LeaseError(f"{str(path)!r} is a symbolic link of user {entry.st_uid}'s; {ADVICE}")
        descriptor = os.open(path.resolve(strict=True), _FOLDER)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LeaseError(
            f"can not open the lease folder {str(path)!r} ({error.strerror}); {ADVICE}"
        ) from error
    mode = os.fstat(descriptor).st_mode
    if mode & _FREE_FOR_ALL == stat.S_IWOTH:
        os.close(descriptor)
        raise LeaseError(f"in {str(path)!r} anybody may remove anybody's lock; `chmod 1777` it")
    return descriptor


def _opened(directory: int, name: str) -> int:
    try:
        return os.open(name, os.O_RDWR | _FILE, dir_fd=directory)
    except OSError as error:
        if error.errno not in _NOT_FOR_WRITING:
            raise
        return os.open(name, os.O_RDONLY | _FILE, dir_fd=directory)


def _new(directory: int, name: str) -> int | None:
    """The file, if nobody else made it meanwhile."""
    try:
        with _all_modes():
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=directory)
    except FileExistsError:
        return None
    except OSError as error:
        raise LeaseError(f"can not make {_path(directory, name)!r} ({error.strerror}); {ADVICE}") from error


def _path(directory: int, name: str) -> str:
    return str(Path(_where(directory), name))


def _where(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


@contextlib.contextmanager
def _all_modes() -> Iterator[None]:
    """No umask: a mode that is put right after the making is wrong for somebody in between."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def _current(directory: int, name: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
