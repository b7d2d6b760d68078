"""Which processes keep a lock, as the kernel tells it. Reads /proc only, and sees what its user may see."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_cudaboot.probes.procfs import process_state

_PROC = Path("/proc")


def lockers(descriptor: int) -> dict[int, str]:
    """The processes that keep a `flock` on the file, whoever took it: pid to name.

    A lock belongs to the open file that was inherited, so the process that took it may be long gone. A process of
    another user shows its files to root alone; then the kernel's table still names who took the lock.
    """
    pids = sorted(set(_inheritors(descriptor)) or set(_takers(descriptor)))
    return {pid: state.name for pid in pids if (state := process_state(pid)) is not None}


def lockers_of(path: Path) -> str:
    """The same of a file by its name, in words."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # it has been taken away meanwhile
        return in_words({})
    try:
        return in_words(lockers(descriptor))
    finally:
        os.close(descriptor)


def in_words(keepers: Mapping[int, str]) -> str:
    """Processes as a message names them."""
    names = [f"pid {pid} ({name})" for pid, name in keepers.items()]
    return ", ".join(names) or "a process that can not be seen from here"


def _inheritors(descriptor: int) -> Iterator[int]:
    wanted = os.fstat(descriptor)
    name = (_PROC / "self/fd" / str(descriptor)).readlink().name
    for process in _PROC.iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
                if any(_locks(process, entry.name, name, wanted) for entry in (process / "fd").iterdir()):
                    yield int(process.name)


def _locks(process: Path, number: str, name: str, wanted: os.stat_result) -> bool:
    try:
        # The name is compared first: to look at a file on a dead network share would never end.
        if (process / "fd" / number).readlink().name != name:
            return False
        same = os.path.samestat((process / "fd" / number).stat(), wanted)
        return same and "FLOCK" in (process / "fdinfo" / number).read_text()
    except FileNotFoundError:
        return False


def _takers(descriptor: int) -> Iterator[int]:
    """From lines such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`."""
    status = os.fstat(descriptor)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in (_PROC / "locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and file in words:
            yield int(words[words.index(file) - 1])
