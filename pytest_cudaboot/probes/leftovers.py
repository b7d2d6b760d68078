"""Processes of a run that live on with a card in their environment, found by the run's mark. It ends those it is told to."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.probes import procfs
from pytest_cudaboot.probes.sweep import MARK

DRIVER = "/libcuda.so"
PIN = b"CUDA_VISIBLE_DEVICES="
ENDING = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """A process that outlives the test that it was started under.

    :param started: in the kernel's ticks: a number alone may come to mean another process.
    """

    pid: int
    started: int
    name: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.name})"


def now() -> int:
    """Read the clock, in the ticks in which the kernel tells when a process began."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def left_on(uuids: Collection[str], run: str, since: int, spared: Collection[int]) -> list[Leftover]:
    """Processes of the run that began since then, are pinned to such a card and have CUDA's driver at hand.

    What merely inherited the pin, such as a compiler's helper, is none; a child of one that has not is as well.

    :param spared: those that are meant to live on.
    """
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [
        Leftover(pid=pid, started=started, name=state.name)
        for pid in pids
        if pid not in spared
        and (started := procfs.started_at(pid) or 0) >= since
        and _bears(pid, f"{MARK}={run}".encode(), {uuid.encode() for uuid in uuids})
        and _has_driver(pid)
        and (state := procfs.process_state(pid)) is not None
        and procfs.started_at(pid) == started  # all of that was one process's
    ]


def end(left: Leftover) -> bool:
    """Kill it, and wait until it is gone; whether it is. Another one that has its number by now is left alone."""
    try:
        handle = os.pidfd_open(left.pid)
    except ProcessLookupError:
        return True
    try:
        if procfs.started_at(left.pid) != left.started:  # asked after that, so that the handle is its own
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return bool(select.select([handle], [], [], ENDING)[0])
    finally:
        os.close(handle)


def _has_driver(pid: int) -> bool:
    try:
        return DRIVER in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False


def _bears(pid: int, mark: bytes, cards: Collection[bytes]) -> bool:
    """Whether a process has the run's mark and such a card in its mask, which for a gang has several."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False
    masks = (entry.removeprefix(PIN).split(b",") for entry in environ if entry.startswith(PIN))
    return mark in environ and any(not set(cards).isdisjoint(mask) for mask in masks)
