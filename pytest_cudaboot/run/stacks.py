"""Stacks of a worker that hangs in a test's own code: it offers Python's by a signal, and its controller asks for both."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
from collections.abc import Mapping
from pathlib import Path

from pytest_cudaboot.probes.debugger import native_stacks

# Nobody else's: tests take the two that are for users, and libraries the first of these.
SIGNAL = signal.SIGRTMAX - 5
PATIENCE = 2.0


def place(folder: Path, worker: str) -> Path:
    """Where a worker's stacks go."""
    return folder / f"{worker}.stacks"


def offer(path: Path) -> None:
    """Have the signal write all threads' stacks there, whoever holds the interpreter's lock, and end this process."""
    # pytest's capture has our stderr, and the file has to be open for as long as the process lives.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    # A signal wakes whoever sleeps in C. What it was sent to comes to an end by the action that was there before, so
    # that no test can go on after it was given up.
    faulthandler.register(SIGNAL, file=file, chain=True)


def take_native(pid: int, into: Path, env: Mapping[str, str]) -> str:
    """Write C's stacks.

    :returns: what made them, or why there are none.
    """
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text("")
    return native_stacks(pid, into, env)


def take_last(handle: int, source: Path, into: Path) -> None:
    """Have Python's stacks written, and add them; the process ends of it, unless even that does not reach it.

    :param handle: a pidfd of the process.
    :param source: the file that it offers them in.
    """
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, SIGNAL)
    select.select([handle], [], [], PATIENCE)
    told = source.read_text(errors="replace") if source.exists() else ""
    with into.open("a") as file:
        file.write(told or "Python did not answer\n")
