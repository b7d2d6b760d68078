"""Foreign programs: how they are run, ended, and reported."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CommandCrashError, CommandError, ToolMissingError
from pytest_cudaboot.probes import process, procfs, recipes
from pytest_cudaboot.probes.process import ended_by, run_command, start_process
from pytest_cudaboot.probes.procfs import ProcessState, process_state
from pytest_cudaboot.probes.recipes import environment_changes, recipe

ENV = {"PATH": os.defpath, "LANG": "C.UTF-8"}
BUDGET = 20.0


def test_streams_status_and_time_are_kept(tmp_path: Path) -> None:
    done = run_command(["sh", "-c", "echo out; echo err >&2"], cwd=tmp_path, env=ENV, budget=BUDGET)

    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 0)
    assert 0 < done.seconds < BUDGET


def test_stdin_is_what_was_given_else_empty(tmp_path: Path) -> None:
    given = run_command(["cat"], cwd=tmp_path, env=ENV, budget=BUDGET, stdin="a line\n")
    nothing = run_command(["cat"], cwd=tmp_path, env=ENV, budget=BUDGET)

    assert (given.stdout, nothing.stdout) == ("a line\n", "")


def test_a_failure_says_status_streams_and_how_to_run_it_again(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        run_command(
            ["sh", "-c", "echo why >&2; exit 3"], cwd=tmp_path, env={**ENV, "ONE": "a b"}, budget=BUDGET
        )

    message = str(caught.value)
    assert re.search(
        r"sh: exit status 3 after \d+\.\d s\n--- stderr ---\nwhy\nto run it again:\ncd ", message
    )
    assert "ONE='a b'" in message
    assert message.endswith("sh -c 'echo why >&2; exit 3'")


def test_the_recipe_of_a_failure_fails_the_same_way(tmp_path: Path) -> None:
    words = ["sh", "-c", 'test "$ONE" = "a\'b" && test "$PWD" = "$HERE" && exit 7']
    env = {**ENV, "ONE": "a'b", "HERE": str(tmp_path)}
    done = run_command(words, cwd=tmp_path, env=env, budget=BUDGET, check=False)

    again = run_command(["sh", "-c", done.recipe()], cwd="/", env=ENV, budget=BUDGET, check=False)

    assert (done.returncode, again.returncode) == (7, 7)


def test_a_signal_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"sh: died of SIGSEGV after"):
        run_command(["sh", "-c", "kill -SEGV $$"], cwd=tmp_path, env=ENV, budget=BUDGET)


def test_an_unknown_signal_keeps_its_number() -> None:
    assert ended_by(-250) == "died of signal 250"


def test_too_long_a_stream_shows_its_end(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"\[\d+ characters before this left out\]") as caught:
        run_command(["sh", "-c", "seq 100000; exit 1"], cwd=tmp_path, env=ENV, budget=BUDGET)

    assert "\n100000\nto run it again" in str(caught.value)


def test_a_missing_program_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match=r"no program 'no-such-program'; looked in: /one:/two"):
        run_command(["no-such-program"], cwd=tmp_path, env={"PATH": "/one:/two"}, budget=BUDGET)


def test_a_relative_program_is_looked_for_where_it_will_run(tmp_path: Path) -> None:
    script = tmp_path / "here.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)

    assert run_command(["./here.sh"], cwd=tmp_path, env=ENV, budget=BUDGET).stdout == "ran\n"
    with pytest.raises(ToolMissingError, match=r"no program './here.sh'; looked in: /here.sh"):
        run_command(["./here.sh"], cwd="/", env=ENV, budget=BUDGET)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no directory '.*/gone' to run 'true' in"):
        run_command(["true"], cwd=tmp_path / "gone", env=ENV, budget=BUDGET)


def test_what_outlives_its_budget_is_killed_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"did not end within 0.3 s and was killed") as caught:
        run_command(["sh", "-c", "sleep 300 & echo $!; wait"], cwd=tmp_path, env=ENV, budget=0.3)

    child = re.search(r"--- stdout ---\n(\d+)", str(caught.value))
    assert child is not None
    assert not is_running(int(child[1]))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -ABRT $$", "sh: died of SIGABRT after"),
        ("sh -c 'kill -SEGV $$'; exit $?", "sh: exit status 139, as shells say SIGSEGV after"),
    ],
)
def test_a_crash_is_told_from_a_failure(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(CommandCrashError, match=words):
        run_command(["sh", "-c", script], cwd=tmp_path, env=ENV, budget=BUDGET)


@pytest.mark.parametrize("status", [1, 127, 128, 130, 143, 255])
def test_a_status_that_is_no_crash(tmp_path: Path, status: int) -> None:
    with pytest.raises(CommandError, match=rf"sh: exit status {status} after") as caught:
        run_command(["sh", "-c", f"exit {status}"], cwd=tmp_path, env=ENV, budget=BUDGET)

    assert type(caught.value) is CommandError


def test_a_hang_is_a_failure_also_for_who_checks_for_himself(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"did not end within 0.1 s and was killed"):
        run_command(["sleep", "300"], cwd=tmp_path, env=ENV, budget=0.1, check=False)


def test_a_daemon_left_behind_neither_delays_nor_survives(tmp_path: Path) -> None:
    done = run_command(["sh", "-c", "sleep 300 & echo $!"], cwd=tmp_path, env=ENV, budget=BUDGET)

    assert done.seconds < BUDGET / 2
    assert not is_running(int(done.stdout))


def test_an_interrupt_ends_the_program_before_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[process.ProcessGroup] = []

    def interrupted(group: process.ProcessGroup, _seconds: float) -> bool:
        started.append(group)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(process.ProcessGroup, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_command(["sleep", "300"], cwd=tmp_path, env=ENV, budget=BUDGET)

    assert started[0].returncode == -signal.SIGKILL


def test_killing_is_bounded_and_names_what_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = start_process(["sleep", "300"], cwd=tmp_path, env=ENV)
    with monkeypatch.context() as patched:
        # A process in uninterruptible sleep can not be had on demand; one that no signal reaches looks the same.
        patched.setattr(os, "killpg", lambda _group, _signal: None)
        ending = group.kill(seconds=0.1)

    assert ending.returncode is None
    assert re.fullmatch(rf"{group.pid} \((sleep|setpriv|python.*), state [SR]\)", ending.survivors[0])
    assert group.kill().returncode == -signal.SIGKILL


@pytest.mark.parametrize("wrapper", ["setpriv", "python"])
def test_a_program_dies_with_the_process_that_started_it(wrapper: str) -> None:
    source = (
        "import os, sys, time\n"
        "from pytest_cudaboot.probes import process\n"
        f"if {wrapper == 'python'}: process._setpriv = lambda: None\n"
        "words = ['sh', '-c', 'echo $$; exec sleep 300']\n"
        "group = process.start_process(words, cwd='/', env=dict(os.environ), stdout=sys.stdout.buffer)\n"
        "time.sleep(300)\n"
    )
    child = read_line_then_kill(source)

    assert wait_gone(int(child))


def test_the_wrapper_does_not_start_a_program_whose_parent_died_meanwhile(tmp_path: Path) -> None:
    words = [sys.executable, "-S", "-c", process._EXEC_WRAPPER, "1", "echo", "started"]
    done = run_command(words, cwd=tmp_path, env=ENV, budget=BUDGET, check=False)

    assert (done.returncode, done.stdout) == (137, "")


def test_a_zombie_is_nobody_who_lives(tmp_path: Path) -> None:
    group = start_process(["true"], cwd=tmp_path, env=ENV)

    assert group.wait(BUDGET)
    assert process_state(group.pid) is None
    assert group.kill().survivors == ()


def test_pytest_variables_are_no_part_of_a_recipe() -> None:
    env = {**recipes._first_environment(), "PYTEST_CURRENT_TEST": "x", "ADDED": "y"}

    assert environment_changes(env) == {"ADDED": "y"}


def test_a_removed_variable_is_unset_in_the_recipe() -> None:
    line = recipe(["gcc", "a b.c"], cwd="/some dir", env_changes={"CPATH": None, "LANG": "C"})

    assert line == "cd '/some dir' && env -u CPATH LANG=C gcc 'a b.c'"


def is_running(pid: int) -> bool:
    return process_state(pid) is not None


def read_line_then_kill(source: str) -> str:
    """Run Python, read its first line, kill it: what it started is an orphan then."""
    root = str(Path(process.__file__).parents[2])
    reader, writer = os.pipe()
    with os.fdopen(reader) as output, os.fdopen(writer, "wb") as into:
        group = start_process(
            [sys.executable, "-c", source], cwd="/", env={**os.environ, "PYTHONPATH": root}, stdout=into
        )
        into.close()
        line = output.readline()
        group.kill()
    return line


def wait_gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process that is none of our children ends in time; it may be gone already."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


@pytest.mark.parametrize(("letter", "left"), [("R", ()), ("D", ("7 (python, state D)",))])
def test_what_only_waits_for_a_processor_to_die_on_is_no_survivor(
    letter: str, left: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is busy is no reason to set a card aside."""
    seen = iter([{7: ProcessState(name="python", letter=letter, group=7)}, {}])
    monkeypatch.setattr(procfs, "_members", lambda _: next(seen))

    assert procfs.survivors(7, deadline=time.monotonic()) == left


def test_the_wait_for_a_processor_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "STARVED", 0.02)
    state = ProcessState(name="python", letter="R", group=7)
    monkeypatch.setattr(procfs, "_members", lambda _: {7: state})

    assert procfs.survivors(7, deadline=time.monotonic()) == ("7 (python, state R)",)
