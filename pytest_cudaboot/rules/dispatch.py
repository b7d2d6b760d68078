"""What is sent next: the policy that the scheduler runs, and that the benchmark runs on a virtual clock. Pure.

A plan is sought once: for each lane, what runs on it and in which order. A job begins when what is before it on its
lanes and what it needs have ended, be that sooner or later than planned. When things have gone too far from the plan,
the jobs that are left are laid out anew, as things stand. So a gang gets its cards by being planned before what could
take them, and whatever is short enough still runs on them until it begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.search import arrange
from pytest_cudaboot.rules.timetable import Job, Lane, Slot, Timetable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SLACK = 0.01  # seconds by which reality may differ from a plan that is kept
DRIFT = 0.02  # of the time that is left, by which it may differ besides: a new plan takes a while, and gains little
SURPRISE = 1.0  # of the time by which something is late already, as much is yet to come


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
        arranged = arrange(jobs, lanes)
        # What no lane can take by now has no place in the arrangement, but one may come that can.
        self._order = tuple(dict.fromkeys((*arranged.order, *range(len(jobs)))))
        self._plan = arranged.lay_out(jobs, lanes).slots
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
        for index in sorted(waiting & self._plan.keys(), key=lambda index: self._plan[index].start):
            wanted = self._plan[index].lanes
            if free.issuperset(wanted) and not_ended.isdisjoint(self._jobs[index].after):
                found.append(Move(job=index, lanes=wanted))
            free.difference_update(wanted)  # what is planned for later does not overtake
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

        left = max((slot.end for slot in self._plan.values()), default=now) - now
        return all(off(index, slot) <= SLACK + DRIFT * left for index, slot in self._plan.items())

    def _anew(
        self, lanes: Sequence[Lane], waiting: Collection[int], until: Mapping[int, float], now: float
    ) -> dict[int, Slot]:
        """What is left, laid out again: each job where it was planned, filling gaps or in turn, or wherever it ends first."""
        kept = {index: slot.lanes for index, slot in self._plan.items()}
        tables = [
            Timetable(self._jobs, lanes, waiting, until, now=now, kept=there, in_turn=in_turn).fill(
                self._order
            )
            for there, in_turn in ((kept, False), (None, False), (kept, True))
        ]
        under_way = {
            index: replace(self._plan[index], end=end) for index, end in until.items() if index in self._plan
        }
        return under_way | min(tables, key=lambda table: table.end).slots


def expected_end(started: float, seconds: float, now: float) -> float:
    """When something is expected to end, which may already have taken longer than expected."""
    due = started + seconds
    return due if now < due else now + SURPRISE * (now - due) + SLACK
