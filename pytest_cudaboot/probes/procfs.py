"""The kernel's table of processes, as far as ending a process group needs it. Reads /proc only."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

STARVED = 30.0  # seconds that a killed process may wait for a processor to die on


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessState:
    """A living process; `letter` is the kernel's for its state: R, S, D, T, ..."""

    name: str
    letter: str
    group: int


def process_state(pid: int) -> ProcessState | None:
    """What the kernel says about a process; None if it is gone or a zombie."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold any character, so the last one closes it.
    head, _, rest = line.rpartition(")")
    letter, _parent, group = rest.split()[:3]
    if letter in "ZX":
        return None
    return ProcessState(name=head.partition("(")[2], letter=letter, group=int(group))


def started_at(pid: int) -> int | None:
    """When a process began, in the kernel's ticks: with its number, its name for good. None if it is gone."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(line.rpartition(")")[2].split()[19])


def kernel_stack(pid: int) -> str:
    """Where in the kernel a process waits: its stack if we may read it, else the function's name, if that."""
    for name in ("stack", "wchan"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text(errors="replace").strip()
        except OSError:
            continue
        if text.strip("0"):
            return text
    return "not told to this user"


def overdue(state: ProcessState, deadline: float) -> bool:
    """Whether a process that was killed should have ended by now.

    One that is runnable has nothing left to do but to die, and gets no processor for it where many others want one.
    """
    return time.monotonic() >= deadline + (STARVED if state.letter == "R" else 0.0)


def survivors(group: int, deadline: float) -> tuple[str, ...]:
    """Members of a process group that live on at the deadline, as `pid (name, state S)`."""
    while members := _members(group):
        if any(overdue(state, deadline) for state in members.values()):
            return tuple(f"{pid} ({state.name}, state {state.letter})" for pid, state in members.items())
        time.sleep(0.005)
    return ()


def _members(group: int) -> dict[int, ProcessState]:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return {}
    except PermissionError:
        pass  # A member changed its user; the table still names it.
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    states = ((pid, state) for pid in pids if (state := process_state(pid)) is not None)
    return {pid: state for pid, state in states if state.group == group}
