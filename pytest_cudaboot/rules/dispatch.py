"""What is sent next: the policy that the scheduler runs, and that the benchmark runs on a virtual clock. Pure.

An order of the jobs is sought once. From then on, whenever something has changed, the jobs that are left are laid
out anew in that order, as things stand; what would begin now is sent. So a gang gets its cards by being laid out
before what could take them, and whatever is short enough still runs on them until it begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.order import find_order
from pytest_cudaboot.rules.timetable import Job, Lane, Slot, Timetable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SLACK = 0.01  # seconds by which reality may differ from a plan that is kept
SURPRISE = 0.5  # of the time that something has already taken longer than expected, as much is yet to come


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A job that goes now, and the lanes that it takes; the first one leads."""

    job: int
    lanes: tuple[str, ...]


class Dispatcher:
    """Keeps the plan of a run, and makes it anew when things go otherwise than planned.

    :param jobs: all jobs; positions are their names.
    :param lanes: all lanes, as they are at the begin.
    """

    def __init__(self, jobs: Sequence[Job], lanes: Sequence[Lane]) -> None:
        self._jobs = jobs
        self._order = find_order(jobs, lanes)
        self._plan = Timetable(jobs, lanes, range(len(jobs)), {}).fill(self._order).slots
        self._there = {lane.name for lane in lanes}

    def moves(
        self, lanes: Sequence[Lane], *, waiting: Collection[int], until: Mapping[int, float], now: float
    ) -> list[Move]:
        """The jobs to send now, as things stand.

        :param lanes: all that there are, busy ones with the time at which they are expected to be free.
        :param waiting: jobs that have not been sent.
        :param until: when those that are under way are expected to end.
        """
        waiting, before = set(waiting), self._there
        self._there = self._manned(lanes, until, now)
        if self._there != before or not self._goes_as_planned(waiting, until, now):
            self._plan = self._anew(lanes, waiting, until, now)
        self._plan = {index: slot for index, slot in self._plan.items() if index in until or index in waiting}
        free = {lane.name for lane in lanes if lane.free <= now}
        not_ended = waiting | until.keys()
        found = []
        for index, slot in self._plan.items():
            due = index in waiting and slot.start <= now + SLACK and free.issuperset(slot.lanes)
            if due and not_ended.isdisjoint(self._jobs[index].after):
                free.difference_update(slot.lanes)
                found.append(Move(job=index, lanes=slot.lanes))
        return found

    def _manned(self, lanes: Sequence[Lane], until: Mapping[int, float], now: float) -> set[str]:
        """The lanes that have a worker: nothing tells when the worker of another one comes, until it is there."""
        busy = {name for index in until if index in self._plan for name in self._plan[index].lanes}
        return {lane.name for lane in lanes if lane.free <= now or lane.name in busy}

    def _goes_as_planned(self, waiting: Collection[int], until: Mapping[int, float], now: float) -> bool:
        def off(index: int, slot: Slot) -> float:
            if index in until:
                return abs(until[index] - slot.end)
            return now - slot.start if index in waiting else slot.end - now

        return all(off(index, slot) <= SLACK for index, slot in self._plan.items())

    def _anew(
        self, lanes: Sequence[Lane], waiting: Collection[int], until: Mapping[int, float], now: float
    ) -> dict[int, Slot]:
        """What is left, laid out again: each job where it was planned, or wherever it ends first."""
        kept = {index: slot.lanes for index, slot in self._plan.items()}
        tables = [
            Timetable(self._jobs, lanes, waiting, until, now=now, kept=there).fill(self._order)
            for there in (kept, None)
        ]
        under_way = {
            index: replace(self._plan[index], end=end) for index, end in until.items() if index in self._plan
        }
        return under_way | min(tables, key=lambda table: table.end).slots


def expected_end(started: float, seconds: float, now: float) -> float:
    """When something is expected to end, which may already have taken longer than expected."""
    due = started + seconds
    return due if now < due else now + SURPRISE * (now - started) + SLACK
