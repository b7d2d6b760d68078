"""A run that is cut off: no accept, no half file, and nothing that it started lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_cudaboot.probes.procfs import process_state
from pytest_cudaboot.run.interrupts import Interrupts
from tests.run.gate import HELD, Gate, catalog_of

PATIENCE = 40.0
BUSY = (
    HELD
    + """
import os, pathlib, signal

def remember(name, pid):
    pathlib.Path(f"{name}.part").write_text(str(pid))
    os.replace(f"{name}.part", f"{name}.pid")

@pytest.mark.spec("c.device")
def test_device(lowerer):
    remember("worker-of-device", os.getpid())
    pid = lowerer.call("hello")["pid"]
    os.kill(pid, signal.SIGSTOP)
    remember("device", pid)
    lowerer.mapped()

@pytest.mark.spec("c.command")
def test_command(run):
    remember("worker-of-command", os.getpid())
    script = "sleep 300 & echo $! > child.pid; echo $$ > command.part; mv command.part command.pid; wait"
    run(["sh", "-c", script], cwd=pathlib.Path.cwd())
"""
)
CATALOG = "\n".join(
    f'[{ident}]\nkind = "step"\ntitle = "T"\nheading = "Busy"\non = "{place}"\nbudget = 300\n'
    for ident, place in [("a.works", "any"), ("c.device", "any"), ("c.command", "host")]
)
NAMES = ("worker-of-device", "device", "worker-of-command", "command", "child")


class Busy:
    """A run of which one worker waits for a device call, and one for a command."""

    def __init__(self, gate: Gate) -> None:
        gate.suite(BUSY, CATALOG).old_accept()
        self.gate = gate
        self.process = gate.start()
        wait_for(lambda: all((gate.path / f"{name}.pid").exists() for name in NAMES), self.told)
        self.pids = [int((gate.path / f"{name}.pid").read_text()) for name in NAMES]

    def told(self) -> str:
        return self.gate.output

    def nothing_survives(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while alive := [(pid, state) for pid in self.pids if (state := process_state(pid))]:
            assert time.monotonic() < deadline, f"still alive: {alive}"

    def ends(self) -> int:
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.nothing_survives(PATIENCE)


def wait_for(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)


@pytest.fixture
def busy(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    monkeypatch.setenv("GATE_PROCESSORS", "2")
    found = Busy(gate)
    yield found
    found.end()


def test_a_killed_controller_leaves_no_accept_and_nothing_alive(busy: Busy) -> None:
    second = busy.gate.here()
    os.kill(busy.process.pid, signal.SIGKILL)
    busy.nothing_survives(2.0)

    assert busy.ends() == -signal.SIGKILL
    assert second.ret == 4
    second.stderr.fnmatch_lines([f"*another run (pid {busy.process.pid}) writes to*"])
    assert (busy.gate.verdict["verdict"], busy.gate.verdict["reasons"]) == ("incomplete", ["running"])
    assert not list(busy.gate.out.glob("*.tmp"))
    assert busy.gate.ledger[-1]["type"] in {"start", "result"}
    replayed = busy.gate.replayed
    assert (replayed["verdict"], len(replayed["ledger"]["lost"])) == ("incomplete", 2)
    assert sorted(cell["reason"] for cell in replayed["cells"] if cell["outcome"] == "not-run") == [
        "test_suite.py::test_command[host] started and never ended",
        "test_suite.py::test_device[host] started and never ended",
    ]


def test_sigterm_ends_a_run_in_order(busy: Busy) -> None:
    os.kill(busy.process.pid, signal.SIGTERM)

    assert busy.ends() == busy.gate.verdict["exit"] == 2
    assert busy.gate.verdict["verdict"] == "incomplete"
    assert "the run was interrupted" in busy.gate.verdict["reasons"]
    assert "incomplete · reference · 1 spec holds, 2 not run" in busy.gate.output
    busy.nothing_survives(0.5)


def test_ctrl_c_twice_still_gives_a_verdict(busy: Busy) -> None:
    os.killpg(busy.process.pid, signal.SIGINT)
    os.killpg(busy.process.pid, signal.SIGINT)

    assert busy.ends() == busy.gate.verdict["exit"] == 2
    assert "the run was interrupted" in busy.gate.verdict["reasons"]
    assert busy.gate.replayed["cells"] == busy.gate.verdict["cells"]
    busy.nothing_survives(2.0)


def test_what_a_test_leaves_running_ends_with_the_run(gate: Gate) -> None:
    leaves = "run(['sh', '-c', 'setsid sleep 300 >/dev/null & echo $! > left.pid'], cwd=pathlib.Path.cwd())"
    gate.suite(f"import pathlib\ndef test_leaves(run): {leaves}", catalog=None)

    assert gate.start("-n", "0").wait(PATIENCE) == 0
    assert process_state(int((gate.path / "left.pid").read_text())) is None


def test_an_interrupt_within_one_process(gate: Gate) -> None:
    tests = HELD + '@pytest.mark.spec("b.other")\ndef test_other(): raise KeyboardInterrupt\n'
    gate.suite(tests, CATALOG.replace("c.device", "b.other").partition("[c.command]")[0])

    assert gate.start("-n", "0").wait(PATIENCE) == gate.verdict["exit"] == 2
    assert gate.outcomes == {"a.works": "holds", "b.other": "not-run"}


def test_a_second_signal_soon_after_the_first_is_no_second_interrupt() -> None:
    interrupts = Interrupts()
    interrupts.install()
    try:
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        interrupts.urgent = True
        with pytest.raises(KeyboardInterrupt, match="SIGINT"):
            signal.raise_signal(signal.SIGINT)
        interrupts.ignore()
        signal.raise_signal(signal.SIGINT)
    finally:
        interrupts.restore()


def test_an_interrupt_of_the_end_still_ends_in_a_verdict(gate: Gate) -> None:
    again = "import os, signal\ndef pytest_sessionfinish(): os.kill(os.getpid(), signal.SIGINT)"
    (gate.path / "conftest.py").write_text(again)
    gate.suite()

    assert gate.start("-n", "0").wait(PATIENCE) == gate.verdict["exit"] == 2
    assert gate.verdict["reasons"] == ["the run was interrupted"]


def test_signals_are_as_they_were_after_a_run(gate: Gate) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    gate.suite().here()

    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_test_that_takes_the_process_along_leaves_no_accept(gate: Gate) -> None:
    gate.suite(HELD.replace("measure(figure=1)", "__import__('os')._exit(0)")).old_accept()
    argv = ["-n", "0"]
    process = gate.start(*argv)

    assert process.wait(PATIENCE) == 0
    assert gate.verdict["verdict"] == "incomplete"


def test_a_collection_error_is_incomplete_with_workers_and_without(gate: Gate) -> None:
    gate.suite(catalog=catalog_of("b.other"))
    (gate.path / "test_bad.py").write_text("import nothing_of_that_name  # and the test of b.other")
    for result in (gate.here(), gate.away()):
        assert result.ret == gate.verdict["exit"] == 12
        assert gate.outcomes == {"a.works": "not-run", "b.other": "not-run"}
        assert gate.verdict["reasons"][0].startswith("test_bad.py could not be collected: ")
        assert "No module named 'nothing_of_that_name'" in gate.verdict["reasons"][0]
        result.stdout.fnmatch_lines(["*Interrupted: 1 error during collection*"])


@pytest.mark.usefixtures("two_workers")
def test_an_internal_error_with_workers(gate: Gate) -> None:
    (gate.path / "conftest.py").write_text(
        "def pytest_collection_modifyitems(): raise RuntimeError('no good')"
    )
    result = gate.suite().away()

    assert result.ret == gate.verdict["exit"] == 3
    assert gate.verdict["reasons"][0].startswith("internal error: ")


def test_an_internal_error_in_one_process(gate: Gate) -> None:
    (gate.path / "conftest.py").write_text("def pytest_runtest_logreport(): raise RuntimeError('no good')")
    result = gate.suite().here()

    assert result.ret == gate.verdict["exit"] == 3
    assert "internal error" in gate.verdict["reasons"][0]
    assert "no good" in gate.verdict["reasons"][0]


def test_a_full_disk_leaves_no_accept(gate: Gate) -> None:
    gate.suite().old_accept()
    limit = (
        "import resource\ndef pytest_collection(): resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    )
    (gate.path / "conftest.py").write_text(limit)
    # The limit is on files, so that what is printed has to go through a pipe.
    done = subprocess.run(gate.argv("-n", "0"), cwd=gate.path, capture_output=True, text=True, check=False)

    assert done.returncode == 3
    assert "cudaboot: no verdict could be written: [Errno 27] File too large" in done.stdout
    assert (gate.verdict["verdict"], gate.verdict["exit"]) == ("incomplete", 3)
    assert gate.verdict["reasons"] == ["no verdict could be written: [Errno 27] File too large"]
    assert not Path(gate.out / "verdict.json.tmp").exists()
