"""Whole runs on a clock that is only a number: the policy that the scheduler runs, on jobs that take what is said."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_cudaboot.rules.dispatch import Dispatcher, Move, expected_end
from pytest_cudaboot.rules.timetable import NOTHING, SWITCH, Job, Lane


@dataclass(slots=True)
class Busy:
    """A lane at work."""

    job: int
    began: float
    switch: float
    ends: float
    lanes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """How a run went.

    :param switches: how often a card got another lowerer.
    :param planning: CPU seconds of the first plan.
    :param deciding: those of the decision that took longest after it.
    """

    makespan: float
    switches: int
    planning: float
    deciding: float
    begins: dict[int, float]
    lanes: dict[int, tuple[str, ...]]


class _Run:
    """A run that is under way, at a moment `now`.

    :param told: the jobs with the durations that the policy is told.
    """

    def __init__(self, jobs: Sequence[Job], lanes: Sequence[Lane], told: Sequence[Job]) -> None:
        self._jobs, self._lanes, self._told = jobs, lanes, told
        self._warm: dict[str, str | None] = {lane.name: lane.warm for lane in lanes}
        self.waiting = set(range(len(jobs)))
        self.under_way: dict[int, Busy] = {}
        self.now = 0.0
        self.begins: dict[int, float] = {}
        self.taken: dict[int, tuple[str, ...]] = {}
        self.switches = 0

    def until(self) -> dict[int, float]:
        """When the policy has to expect the end of each job that is under way."""
        return {
            index: expected_end(busy.began, self._told[index].seconds + busy.switch, self.now)
            for index, busy in self.under_way.items()
        }

    def lanes(self, until: Mapping[int, float]) -> list[Lane]:
        """As the policy sees them."""
        free = {name: until[busy.job] for busy in self.under_way.values() for name in busy.lanes}
        return [
            replace(lane, free=free.get(lane.name, self.now), warm=self._warm[lane.name])
            for lane in self._lanes
        ]

    def begin(self, move: Move) -> None:
        job = self._jobs[move.job]
        cost, switched = _switch(job, [self._warm[name] for name in move.lanes])
        self.switches += switched
        self.under_way[move.job] = Busy(move.job, self.now, cost, self.now + job.seconds + cost, move.lanes)
        self.waiting.discard(move.job)
        self.begins[move.job], self.taken[move.job] = self.now, move.lanes
        if job.warm is not None:
            self._warm.update(dict.fromkeys(move.lanes, job.warm if job.cards == 1 else NOTHING))

    def go_on(self) -> None:
        """To the moment when the next job ends."""
        self.now = min(busy.ends for busy in self.under_way.values())
        for index in [index for index, busy in self.under_way.items() if busy.ends <= self.now]:
            del self.under_way[index]


def play(jobs: Sequence[Job], lanes: Sequence[Lane], believed: Sequence[Job] | None = None) -> Played:
    """Run jobs to the end.

    :param believed: the same jobs with the durations that the policy is told; the real ones if not given.
    """
    told = jobs if believed is None else believed
    began = time.process_time()
    dispatcher = Dispatcher(told, lanes)
    planning, deciding = time.process_time() - began, 0.0
    run = _Run(jobs, lanes, told)
    while run.waiting or run.under_way:
        until = run.until()
        state = run.lanes(until)
        began = time.process_time()
        moves = dispatcher.moves(state, waiting=run.waiting, until=until, now=run.now)
        deciding = max(deciding, time.process_time() - began)
        for move in moves:
            run.begin(move)
        run.go_on()
    return Played(
        makespan=run.now,
        switches=run.switches,
        planning=planning,
        deciding=deciding,
        begins=run.begins,
        lanes=run.taken,
    )


def _switch(job: Job, warm: Sequence[str | None]) -> tuple[float, bool]:
    switched = job.warm not in (None, NOTHING) and any(
        there not in (None, NOTHING, job.warm) for there in warm
    )
    return (SWITCH if switched and job.cards == 1 else 0.0), switched
