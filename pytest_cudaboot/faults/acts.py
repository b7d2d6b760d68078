"""Commit a fault in this very process. Most of these do not return; none of them cleans up, which is the point."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from pytest_cudaboot.errors import DeviceError
from pytest_cudaboot.faults.schedule import Act

SMALL_DISK = 64 << 20  # a file system of this size was made to be filled
HEADROOM = 64 << 20
TOO_MUCH = 1 << 32
_MUTEX_BYTES = 64  # more than any pthread_mutex_t has; all zero is PTHREAD_MUTEX_INITIALIZER


def crash() -> None:
    ctypes.string_at(0)


def abort() -> None:
    ctypes.CDLL(None).abort()


def leave() -> None:
    """End by C's `exit`, as a library does that gives up."""
    ctypes.CDLL(None).exit(1)


def hang() -> None:
    _never_return(ctypes.CDLL(None))


def hang_holding() -> None:
    _never_return(ctypes.PyDLL(None))


def hit_memory_limit() -> None:
    """Ask for more memory than this process may have; the limit is lifted again, so that what comes next has room.

    :raises MemoryError: what the interpreter makes of the kernel's refusal.
    """
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + HEADROOM, limits[1]))
    try:
        bytearray(TOO_MUCH)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    raise DeviceError(
        f"{TOO_MUCH} bytes were had under a limit of {HEADROOM} more; this machine has no RLIMIT_AS"
    )


def fill_disk(folder: Path, written: Path) -> None:
    """Have no further byte fit into a folder: fill it if it was made for that, else limit this process's files.

    :param written: the file whose next line shall not fit.
    """
    here = os.statvfs(folder)
    if here.f_blocks * here.f_frsize > SMALL_DISK:
        size = written.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return
    with (folder / "filler").open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):  # the last bytes one by one: a line is shorter than a page
            try:
                while stream.write(bytes(size)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def _never_return(libc: ctypes.CDLL) -> NoReturn:
    """Lock a mutex twice: unlike a sleep, that goes on waiting after every signal that it survives."""
    mutex = ctypes.create_string_buffer(_MUTEX_BYTES)
    while True:
        libc.pthread_mutex_lock(mutex)


IN_PROCESS: Mapping[Act, Callable[[], None]] = {
    Act.CRASH: crash,
    Act.ABORT: abort,
    Act.EXIT: leave,
    Act.HANG: hang,
    Act.HANG_HOLDING: hang_holding,
    Act.MEMORY_LIMIT: hit_memory_limit,
}
