"""What a run must report of its faults, worked out from suite and schedule alone. It shares no code with the judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_cudaboot.faults.schedule import Act, Fault, Schedule, Victim
from pytest_cudaboot.faults.suite import Suite, Work
from pytest_cudaboot.model import CellKey

HOLDS, BROKEN, BLOCKED, NOT_RUN = "holds", "broken", "blocked", "not-run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """What becomes of a cell.

    :param words: what its reason must say.
    """

    outcome: str
    cause: str | None = None
    words: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What becomes of a run.

    :param fates: of every planned cell, had the run come to its end.
    :param fired: numbers of the faults that are committed in such a run.
    :param end: the fault that ends it before its time, or null.
    """

    fates: Mapping[CellKey, Fate]
    fired: frozenset[int]
    end: Fault | None


# fmt: off
SEEN: Mapping[tuple[Victim, Act], Fate] = {
    (Victim.DEVICE, Act.CRASH): Fate(outcome=BROKEN, cause="crash", words="died of SIGSEGV"),
    (Victim.DEVICE, Act.ABORT): Fate(outcome=BROKEN, cause="crash", words="died of SIGABRT"),
    (Victim.DEVICE, Act.EXIT): Fate(outcome=BROKEN, cause="crash", words="exit status 1"),
    (Victim.DEVICE, Act.KILL): Fate(outcome=BROKEN, cause="crash", words="died of SIGKILL"),
    (Victim.DEVICE, Act.HANG): Fate(outcome=BROKEN, cause="hang", words="did not answer"),
    (Victim.DEVICE, Act.HANG_HOLDING): Fate(outcome=BROKEN, cause="hang", words="did not answer"),
    (Victim.DEVICE, Act.STICKY): Fate(outcome=BROKEN, cause="run", words="CUDA_ERROR_ILLEGAL_ADDRESS"),
    (Victim.DEVICE, Act.STICKY_LATE): Fate(outcome=BROKEN, cause="run", words="CUDA_ERROR_ILLEGAL_ADDRESS"),
    (Victim.DEVICE, Act.OUT_OF_MEMORY): Fate(outcome=BROKEN, cause="run", words="Out of memory"),
    (Victim.DEVICE, Act.MEMORY_LIMIT): Fate(outcome=BROKEN, cause="run", words="was refused memory on the host"),
    (Victim.WORKER, Act.CRASH): Fate(outcome=BROKEN, cause="crash", words="crashed while running"),
    (Victim.WORKER, Act.ABORT): Fate(outcome=BROKEN, cause="crash", words="crashed while running"),
    (Victim.WORKER, Act.EXIT): Fate(outcome=BROKEN, cause="crash", words="crashed while running"),
    (Victim.WORKER, Act.KILL): Fate(outcome=BROKEN, cause="crash", words="crashed while running"),
    (Victim.WORKER, Act.HANG): Fate(outcome=BROKEN, cause="hang", words="did not end its call within"),
    (Victim.WORKER, Act.HANG_HOLDING): Fate(outcome=BROKEN, cause="hang", words="did not end its call within"),
    (Victim.WORKER, Act.MEMORY_LIMIT): Fate(outcome=BROKEN, cause="run", words="MemoryError"),
}
# fmt: on


def expect(suite: Suite, schedule: Schedule) -> Expected:
    """Work it out, prerequisites first."""
    fates: dict[CellKey, Fate] = {}
    fired: set[int] = set()
    end: Fault | None = None
    by_id = {work.id: work for work in suite.works}
    for work in suite.works:
        for cell in suite.cells(work):
            if any(fates[need].outcome != HOLDS for need in _needed(suite, by_id, work, cell)):
                fates[cell] = Fate(outcome=BLOCKED)
                continue
            fates[cell] = Fate(outcome=HOLDS)
            for number, fault in schedule.at(cell):
                fired.add(number)
                if fault.terminal:
                    end = fault
                else:
                    fates[cell] = SEEN[fault.victim, fault.act]
    return Expected(fates=fates, fired=frozenset(fired), end=end)


def _needed(suite: Suite, by_id: Mapping[str, Work], work: Work, cell: CellKey) -> list[CellKey]:
    """The cells that a cell waits for: of the same lowerer and card, where both sides have one."""
    return [
        other
        for need in work.needs
        for other in suite.cells(by_id[need])
        if not _apart(cell.gpu, other.gpu) and not _apart(cell.lowerer, other.lowerer)
    ]


def _apart(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and one != other
