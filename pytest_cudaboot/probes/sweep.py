"""Waits for a run to be over, however it ends, and then ends every process that bears the run's mark.

It is run as a file by a bare interpreter, outlives a controller that was killed, and imports the standard library only:
a child of a child is in nobody's process group any more, but it has inherited its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "CUDABOOT_RUN"
PATIENCE = 5.0
_PR_SET_PDEATHSIG = 1


def main(run: str) -> None:
    """The run holds the other end of our standard input, so that it closes when the run ends or is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)  # whoever started us asked that we die along
    while os.read(sys.stdin.fileno(), 1):
        pass
    deadline = time.monotonic() + PATIENCE
    # What was killed may have started something a moment before.
    while _kill_marked(f"{MARK}={run}".encode()) and time.monotonic() < deadline:
        time.sleep(0.01)


def _kill_marked(mark: bytes) -> bool:
    """Whether there was anything left to kill."""
    found = False
    for pid in _processes():
        with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):
            handle = os.pidfd_open(pid)  # from here on the number can not come to mean another process
            try:
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    found = True
            finally:
                os.close(handle)
    return found


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


if __name__ == "__main__":
    main(sys.argv[1])
