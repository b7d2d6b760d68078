"""What must be reported, worked out by hand for suites that fit on a page."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cudaboot.faults.expect import Expected, expect
from pytest_cudaboot.faults.schedule import Act, Fault, Schedule, Victim
from pytest_cudaboot.faults.suite import Suite, Work
from pytest_cudaboot.model import CellKey

A, B = CellKey("s.each", None, "GPU-a"), CellKey("s.each", None, "GPU-b")
SUITE = Suite(
    works=(
        Work(id="s.each", on="each"),
        Work(id="s.next", on="each", needs=("s.each",)),
        Work(id="s.all", on="any", needs=("s.each",)),
        Work(id="s.host", on="host", lowerers=("xla", "iree")),
        Work(id="s.xla", on="any", lowerers=("xla",), needs=("s.host",)),
    ),
    cards=("GPU-a", "GPU-b"),
)


def kill(cell: CellKey, victim: Victim = Victim.WORKER) -> Fault:
    return Fault(victim=victim, act=Act.KILL, cell=cell, phase="call")


def expected(*faults: Fault) -> Expected:
    return expect(SUITE, Schedule(seed=0, faults=faults))


def outcomes(cells: Expected) -> dict[str, Sequence[str]]:
    return {work.id: [cells.fates[cell].outcome for cell in SUITE.cells(work)] for work in SUITE.works}


def test_without_a_fault_everything_holds() -> None:
    assert {fate.outcome for fate in expected().fates.values()} == {"holds"}


def test_a_broken_cell_blocks_its_own_card_and_what_waits_for_all() -> None:
    found = outcomes(expected(kill(A)))

    assert found["s.each"] == ["broken", "holds"]
    assert found["s.next"] == ["blocked", "holds"]
    assert found["s.all"] == ["blocked"]
    assert found["s.host"] == ["holds", "holds"]


def test_another_lowerers_cell_blocks_nothing() -> None:
    assert outcomes(expected(kill(CellKey("s.host", "iree"))))["s.xla"] == ["holds"]
    assert outcomes(expected(kill(CellKey("s.host", "xla"))))["s.xla"] == ["blocked"]


def test_a_fault_in_a_blocked_cell_is_never_committed() -> None:
    found = expected(kill(A), kill(CellKey("s.all")), kill(CellKey("s.all"), Victim.CONTROLLER))

    assert found.fired == {0}
    assert found.end is None


def test_a_fault_of_the_controller_ends_the_run_and_breaks_no_cell() -> None:
    end = kill(B, Victim.CONTROLLER)
    found = expected(end)

    assert found.end == end
    assert found.fates[B].outcome == "holds"
