"""C stacks of a process that hangs, with a debugger and without."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudaboot.probes.debugger import native_stacks
from pytest_cudaboot.probes.process import ProcessGroup, start_process

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessGroup]:
    group = start_process(["sleep", "300"], cwd=tmp_path, env=ENV)
    yield group
    group.kill()


def debugger(folder: Path, script: str) -> dict[str, str]:
    """A stand-in for gdb that is alone on PATH."""
    path = folder / "gdb"
    path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
    path.chmod(0o755)
    return {"PATH": str(folder)}


def test_the_debugger_says_where_it_hangs(sleeper: ProcessGroup, tmp_path: Path) -> None:
    env = debugger(tmp_path, 'for pid; do :; done; echo "#0 nanosleep of $pid"')

    assert native_stacks(sleeper.pid, tmp_path / "stacks", env) == "gdb"
    assert (tmp_path / "stacks").read_text() == f"by gdb:\n#0 nanosleep of {sleeper.pid}\n\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo ptrace: Operation not permitted. >&2", "gdb says 'ptrace: Operation not permitted.'"),
        ("exit 1", "gdb says 'nothing'"),
        ("kill -STOP $$", "gdb did not end within 0.2 s"),
    ],
)
def test_why_there_are_none(sleeper: ProcessGroup, tmp_path: Path, script: str, words: str) -> None:
    told = native_stacks(sleeper.pid, tmp_path / "stacks", debugger(tmp_path, script), budget=0.2)

    assert told == f"no stacks in C: {words}"


def test_a_machine_without_a_debugger_says_so(sleeper: ProcessGroup, tmp_path: Path) -> None:
    told = native_stacks(sleeper.pid, tmp_path / "stacks", {"PATH": str(tmp_path)})

    assert told == "no stacks in C: none of gdb, eu-stack, py-spy is on PATH"


def test_a_stopped_process_is_not_waited_for(sleeper: ProcessGroup, tmp_path: Path) -> None:
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)

    assert native_stacks(sleeper.pid, tmp_path / "stacks", ENV).endswith("the process is in state T")
    assert (tmp_path / "stacks").read_text().startswith("in the kernel: ")


def test_a_process_that_is_gone_is_named_as_such(tmp_path: Path) -> None:
    group = start_process([sys.executable, "-c", ""], cwd=tmp_path, env=ENV)
    group.wait(10)

    assert native_stacks(group.pid, tmp_path / "stacks", ENV).endswith("the process had ended")
    group.kill()
