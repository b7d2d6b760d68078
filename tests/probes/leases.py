"""Other processes that lease a card, or occupy one, and then wait. It holds no test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest_cudaboot

ROOT = Path(pytest_cudaboot.__file__).parents[1]
A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
C = "GPU-cccccccc-0000-0000-0000-000000000003"
SECONDS = 20.0
NOBODY = 65534

HOLDER = """
import os, sys
from pathlib import Path
from pytest_cudaboot.probes import lease
if sys.argv[1] == "nobody" and os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
held = lease.acquire(sys.argv[3:], folder=Path(sys.argv[2]))
print(os.getpid(), flush=True)
sys.stdin.read()
held.release()
"""
# A worker: it occupies the card, has a device process inherit the lock, and goes on.
WORKER = """
import os, sys, subprocess
from pathlib import Path
from pytest_cudaboot.probes import lease
busy = lease.occupy(sys.argv[3], folder=Path(sys.argv[2]))
null = subprocess.DEVNULL
device = subprocess.Popen(["sleep", "300"], stdin=null, stdout=null, pass_fds=[busy], start_new_session=True)
print(device.pid, flush=True)
sys.stdin.read()
"""


class Other:
    """Another process that does something with a lease and then waits."""

    def __init__(self, source: str, folder: Path, *uuids: str, user: str = "") -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", source, user, str(folder), *uuids],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.popen.stdout is not None
        self.told = int(self.popen.stdout.readline())
        self.pid = self.popen.pid

    def end(self) -> None:
        self.popen.communicate(timeout=SECONDS)

    def kill(self) -> None:
        self.popen.kill()
        self.end()


@contextmanager
def run(folder: Path, *uuids: str, user: str = "") -> Iterator[Other]:
    other = Other(HOLDER, folder, *uuids, user=user)
    try:
        yield other
    finally:
        other.kill()


@contextmanager
def worker(folder: Path, uuid: str) -> Iterator[Other]:
    """A worker and its device process, which lives until the block ends."""
    other = Other(WORKER, folder, uuid)
    try:
        yield other
    finally:
        other.kill()
        with suppress(ProcessLookupError):
            os.killpg(other.told, signal.SIGKILL)
