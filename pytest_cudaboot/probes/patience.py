"""One at a time, by a lock file; whoever waits in vain for another process is told which one that is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_cudaboot.errors import BusyError
from pytest_cudaboot.probes.lockers import lockers_of


def alone(lock: Path, seconds: float, work: str) -> AbstractContextManager[object]:
    """A context manager: nobody else has the lock meanwhile.

    :param seconds: how long to wait for others.
    :param work: what somebody who has it does, for the message: `making a module`.
    :raises BusyError: that was not enough.
    """
    try:
        return FileLock(lock).acquire(timeout=seconds)
    except Timeout as error:
        raise BusyError(
            f"another process has been {work} for more than {seconds:g} s: {lockers_of(lock)} holds {lock}; "
            f"wait for it or end it, and run again"
        ) from error
