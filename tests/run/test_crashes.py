"""What dies under a test: its worker, or the device process. One cell is red, and the rest goes on."""

from __future__ import annotations

import signal
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.run.gate import HELD, RUN_LINEAR, Gate, catalog_of

DYING = (
    HELD
    + """
import ctypes, os, signal
@pytest.mark.spec("b.exits")
def test_exits(measure): measure(x=1); os._exit(7)
@pytest.mark.spec("b.killed")
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
@pytest.mark.spec("b.faults")
def test_faults(): signal.signal(signal.SIGSEGV, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGSEGV)
@pytest.mark.spec("b.needs")
def test_needs(measure): measure(x=1)
@pytest.mark.spec("b.after")
def test_after(measure):
    asked = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(asked))  # PR_GET_PDEATHSIG
    measure(dies_with_the_controller=asked.value)
"""
)
SPECS = ("b.exits", "b.killed", "b.faults", "b.needs", "b.after")


@pytest.mark.usefixtures("two_workers")
def test_a_worker_that_dies_takes_its_own_cell_only(gate: Gate) -> None:
    gate.suite(DYING, catalog_of(*SPECS, b_needs=["b.exits"]))
    result = gate.away("-v", "--junitxml", "junit.xml")

    assert result.ret == gate.verdict["exit"] == 1
    crashed = dict.fromkeys(["b.exits", "b.killed", "b.faults"], "broken")
    assert gate.outcomes == {"a.works": "holds", **crashed, "b.needs": "blocked", "b.after": "holds"}
    assert {gate.cells[spec]["cause"] for spec in crashed} == {"crash"}
    assert gate.cells["b.after"]["measurements"] == {"dies_with_the_controller": signal.SIGKILL}
    result.stdout.fnmatch_lines(["*test_needs* BLOCKED (its prerequisite b.exits is broken)"])
    assert_in_junit(gate)
    assert_in_ledger(gate)
    assert gate.replayed["cells"] == gate.verdict["cells"]


def assert_in_junit(gate: Gate) -> None:
    suite = ET.parse(gate.path / "junit.xml").getroot()[0]  # noqa: S314 - our own file

    assert (suite.attrib["errors"], suite.attrib["failures"]) == ("3", "0")


def assert_in_ledger(gate: Gate) -> None:
    """The worker that died is named, and is the one that the test was sent to."""
    crashed = [record for record in gate.records("result") if record["status"] == "crashed"]
    sent = {record["nodeid"]: record["worker"] for record in gate.records("start")}

    assert len(crashed) == 3
    for crash in crashed:
        assert crash["worker"] == sent[crash["nodeid"]]
        assert f"worker '{crash['worker']}' crashed while running" in crash["reason"]


def test_a_crash_counts_for_stopping_at_the_first_failure(gate: Gate) -> None:
    tests = HELD.replace("measure(figure=1)", "__import__('os')._exit(1)")
    more = [f"b.n{number}" for number in range(5)]
    waits = {ident.replace(".", "_"): ["a.works"] for ident in more}
    waiver = '[[waiver]]\nspec = "a.works"\nreason = "r"\nowner = "me"\nexpires = 2999-01-01\n'
    (gate.path / "cudaboot-waivers.toml").write_text(waiver)
    tests += "".join(
        f'@pytest.mark.spec("{ident}")\ndef test_{ident[2:]}(measure): measure(x=1)\n' for ident in more
    )
    gate.suite(tests, catalog_of(*more, **waits)).away("-x")

    assert gate.verdict["exit"] == 12
    assert "the run was stopped early (-x or --maxfail)" in gate.verdict["reasons"]
    assert list(gate.outcomes.values()).count("not-run") >= 4


DEVICE = (
    HELD
    + RUN_LINEAR
    + """
import os, signal, time

def pid(lowerer):
    return lowerer.call("hello")["pid"]

@pytest.mark.spec("c.crash")
def test_crash(lowerer):
    os.kill(pid(lowerer), signal.SIGSEGV)
    lowerer.mapped()

@pytest.mark.spec("c.hang")
def test_hang(lowerer):
    os.kill(pid(lowerer), signal.SIGSTOP)
    lowerer.mapped()

@pytest.mark.spec("c.worker")
def test_worker(lowerer):
    open("device.pid", "w").write(str(pid(lowerer)))
    os._exit(1)

@pytest.mark.spec("c.orphan")
def test_orphan(measure):
    measure(x=1)
    deadline = time.monotonic() + 30
    name = f"/proc/{open('device.pid').read()}"
    while os.path.exists(name) and "(zombie)" not in open(f"{name}/status").read():
        assert time.monotonic() < deadline

@pytest.mark.spec("c.next")
def test_next(session, project):
    run_linear(session, project)
"""
)
DEVICE_CATALOG = (
    "".join(
        f'[c.{name}]\nkind = "step"\ntitle = "T"\nheading = "Device"\non = "any"\n'
        f'lowerers = ["xla"]\nbudget = {budget}\n{more}\n'
        for name, budget, more in [
            ("crash", 30, ""),
            ("hang", 2, ""),
            ("worker", 30, ""),
            ("orphan", 30, 'needs = ["c.worker"]'),
            ("next", 30, 'needs = ["c.crash", "c.hang", "c.worker"]'),
        ]
    )
    + '[a.works]\nkind = "step"\ntitle = "T"\nheading = "Device"\n'
)
EXCUSED = "".join(
    f'[[waiver]]\nspec = "c.{name}"\nreason = "so that the next may go on"\nowner = "me"\nexpires = 2999-01-01\n'
    for name in ("crash", "hang", "worker")
)


def test_a_device_process_that_dies_or_hangs_leaves_its_evidence(gate: Gate) -> None:
    (gate.path / "cudaboot-waivers.toml").write_text(EXCUSED)
    gate.suite(DEVICE, DEVICE_CATALOG).away()

    cells = gate.cells
    assert gate.outcomes == {
        **dict.fromkeys(["c.crash", "c.hang", "c.worker"], "waived"),
        **dict.fromkeys(["c.orphan", "c.next", "a.works"], "holds"),
    }
    results = {record["spec"]: record for record in gate.records("result")}
    assert [results[f"c.{name}"]["cause"] for name in ("crash", "hang", "worker")] == [
        "crash",
        "hang",
        "crash",
    ]
    assert "died of SIGSEGV during 'mapped'" in cells["c.crash"]["reason"]
    assert "did not answer 'mapped' within" in cells["c.hang"]["reason"]
    crash, hang = cells["c.crash"]["evidence"]["device"], cells["c.hang"]["evidence"]["device"]
    assert (crash["returncode"], crash["verb"], hang["state"]) == (-11, "mapped", "T")
    assert "Segmentation fault" in crash["log_tail"]
    assert Path(crash["log"]).parent == gate.out / "logs"
    assert Path(crash["log"]).exists()
    assert gate.replayed["cells"] == gate.verdict["cells"]


def test_a_process_that_dies_under_an_in_process_test_is_replaced(gate: Gate) -> None:
    tests = (
        DEVICE.split('@pytest.mark.spec("c.hang")')[0]
        + '@pytest.mark.spec("c.next")'
        + DEVICE.split('@pytest.mark.spec("c.next")')[1]
        + "".join(f'@pytest.mark.spec("c.{n}")\ndef test_{n}(): pass\n' for n in ("hang", "worker", "orphan"))
    )
    catalog = DEVICE_CATALOG.replace('needs = ["c.crash", "c.hang", "c.worker"]', "")
    gate.suite(tests, catalog).here("-k", "crash or next or works")

    assert gate.verdict["exit"] == 1
    assert (gate.cells["c.crash"]["cause"], gate.outcomes["c.next"]) == ("crash", "holds")
