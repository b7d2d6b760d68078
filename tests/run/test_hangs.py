"""A worker that hangs in a test's own code is ended by its controller; the test is broken, and the rest goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.gate import HELD, Gate, catalog_of

# Budgets are in the catalogue; everything else is made short, so that nobody waits for what is certain.
SHORT = """
from pytest_cudaboot.run import budgets, deciding, watchdog
watchdog.TICK, watchdog.GRACE, watchdog.KILL_SECONDS = 0.1, 0.4, 0.5
"""
HANGING = (
    HELD
    + """
import ctypes, os, time
@pytest.mark.spec("b.python")
def test_python(measure): measure(pid=os.getpid()); wait_for_ever()
@pytest.mark.spec("b.locked")
def test_locked(measure): measure(x=1); ctypes.PyDLL(None).sleep(300)
@pytest.mark.spec("b.after")
def test_after(measure): measure(x=1)

def wait_for_ever():
    while True:
        time.sleep(0.1)
"""
)


def short(gate: Gate, more: str = "") -> Gate:
    (gate.path / "conftest.py").write_text(SHORT + more)
    return gate


@pytest.fixture
def hung(gate: Gate) -> Gate:
    catalog = catalog_of("b.python", "b.locked", "b.after")
    for spec in ("python", "locked"):
        catalog = catalog.replace(f"[b.{spec}]\n", f"[b.{spec}]\nbudget = 0.4\n")
    short(gate).suite(HANGING, catalog).away()
    return gate


def test_a_hang_costs_its_own_cell_whoever_holds_the_interpreter(hung: Gate) -> None:
    assert hung.outcomes == {
        "a.works": "holds",
        **dict.fromkeys(["b.python", "b.locked"], "broken"),
        "b.after": "holds",
    }
    for spec, where in (("b.python", "in wait_for_ever"), ("b.locked", "in test_locked")):
        cell = hung.cells[spec]
        facts = cell["evidence"]["worker"]
        assert cell["cause"] == "hang"
        assert cell["reason"].startswith(
            "it did not end its call within 0.4 s and 0.4 s of grace; its worker"
        )
        assert where in Path(facts["stacks"]).read_text()
        assert facts["debugger"] == "gdb" or facts["debugger"].startswith("no stacks in C: ")


@pytest.mark.usefixtures("two_workers")
def test_a_collection_that_hangs_ends_the_run(gate: Gate) -> None:
    short(gate, "watchdog.COLLECTING = 3").suite(
        f"import os, time\nif os.environ.get('PYTEST_XDIST_WORKER') == 'gw0': time.sleep(300)\n{HELD}"
    )
    result = gate.away()

    assert (result.ret, gate.verdict["verdict"]) == (12, "incomplete")
    assert "did not end its collecting within 3 s" in gate.verdict["reasons"][0]


def test_an_end_that_hangs_is_no_accept(gate: Gate) -> None:
    """The finalizer of a session's fixture, after all tests have ended."""
    fixture = "@pytest.fixture(scope='session')\ndef slow():\n    yield\n    __import__('time').sleep(300)\n"
    short(gate, "deciding.FIXTURES = 2").suite(
        "import pytest\n" + fixture + HELD.replace("measure,", "slow, measure,")
    )
    gate.away()

    assert gate.verdict["verdict"] == "incomplete"
    assert gate.outcomes == {"a.works": "holds"}
    assert "did not end its ending within 2 s" in gate.verdict["reasons"][0]


def test_a_child_that_keeps_the_workers_pipe_hides_nothing(gate: Gate) -> None:
    fork = "os.fork() or (__import__('time').sleep(4), os._exit(0))"
    tests = (
        HELD
        + f'import os\n@pytest.mark.spec("b.fork")\ndef test_fork(): {fork}; __import__("time").sleep(300)\n'
    )
    catalog = catalog_of("b.fork").replace("[b.fork]\n", "[b.fork]\nbudget = 0.4\n")
    short(gate).suite(tests, catalog).away()

    assert gate.replayed["cells"] == gate.verdict["cells"]
    assert (gate.outcomes, gate.cells["b.fork"]["cause"]) == (
        {"a.works": "holds", "b.fork": "broken"},
        "hang",
    )
