"""C stacks of a running process, by whatever debugger the machine has. It changes nothing in the process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from pytest_cudaboot.errors import CommandHangError
from pytest_cudaboot.probes import procfs
from pytest_cudaboot.probes.process import run_command, tail

BUDGET = 10.0
DEBUGGERS: dict[str, tuple[str, ...]] = {
    "gdb": ("-nx", "-batch", "-ex", "set pagination off", "-ex", "thread apply all backtrace 60", "-p"),
    "eu-stack": ("-p",),
    "py-spy": ("dump", "--native", "--pid"),
}
_NO_STACKS = "no stacks in C"
_UNREACHABLE = "DT"  # a debugger would wait for such a process as long as everybody else does
_MOMENT = 0.5


def native_stacks(pid: int, into: Path, env: Mapping[str, str], budget: float = BUDGET) -> str:
    """Append the stacks of all threads to a file.

    :returns: what made them, or why there are none, in words.
    """
    state = _settled(pid)
    if state is None:
        return f"{_NO_STACKS}: the process had ended"
    if state.letter in _UNREACHABLE:
        _append(into, f"in the kernel: {procfs.kernel_stack(pid)}")
        return f"{_NO_STACKS}: the process is in state {state.letter}"
    found = next((name for name in DEBUGGERS if shutil.which(name, path=env.get("PATH"))), None)
    if found is None:
        return f"{_NO_STACKS}: none of {', '.join(DEBUGGERS)} is on PATH"
    why = _ask(found, pid, into, env, budget)
    return f"{_NO_STACKS}: {found} {why}" if why else found


def _settled(pid: int) -> procfs.ProcessState | None:
    """The process's state, where it is one that lasts: everybody who reads a disk is in D for a moment."""
    deadline = time.monotonic() + _MOMENT
    state = procfs.process_state(pid)
    while state is not None and state.letter == "D" and time.monotonic() < deadline:
        time.sleep(0.01)
        state = procfs.process_state(pid)
    return state


def _ask(debugger: str, pid: int, into: Path, env: Mapping[str, str], budget: float) -> str | None:
    """Have a debugger write the stacks; why it did not, if so."""
    # It would ask servers of the distribution for symbols, and for minutes.
    quiet = {**env, "DEBUGINFOD_URLS": ""}
    argv = [debugger, *DEBUGGERS[debugger], str(pid)]
    try:
        done = run_command(argv, cwd=os.sep, env=quiet, budget=budget, check=False)
    except CommandHangError:
        return f"did not end within {budget:g} s"
    _append(into, f"by {debugger}:\n{done.stdout}")
    return None if "#0" in done.stdout else f"says {tail(done.stderr, 300) or 'nothing'!r}"


def _append(path: Path, text: str) -> None:
    with path.open("a", errors="replace") as file:
        file.write(f"{text}\n")
