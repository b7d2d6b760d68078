"""Whole runs on a clock that is only a number: the policy that the scheduler runs, on jobs that take what is said."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_cudaboot.rules.dispatch import Dispatcher, expected_end
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


def play(jobs: Sequence[Job], lanes: Sequence[Lane], believed: Sequence[Job] | None = None) -> Played:
    """Run jobs to the end.

    :param believed: the same jobs with the durations that the policy is told; the real ones if not given.
    """
    told = jobs if believed is None else believed
    began = time.process_time()
    dispatcher = Dispatcher(told, lanes)
    planning, deciding = time.process_time() - began, 0.0
    waiting, under_way, now = set(range(len(jobs))), dict[int, Busy](), 0.0
    warm: dict[str, str | None] = {lane.name: lane.warm for lane in lanes}
    begins: dict[int, float] = {}
    taken: dict[int, tuple[str, ...]] = {}
    switches = 0
    while waiting or under_way:
        until = {
            index: expected_end(busy.began, told[index].seconds + busy.switch, now)
            for index, busy in under_way.items()
        }
        free = {name: until[busy.job] for busy in under_way.values() for name in busy.lanes}
        state = [replace(lane, free=free.get(lane.name, now), warm=warm[lane.name]) for lane in lanes]
        began = time.process_time()
        moves = dispatcher.moves(state, waiting=waiting, until=until, now=now)
        deciding = max(deciding, time.process_time() - began)
        for move in moves:
            job = jobs[move.job]
            cost, switched = _switch(job, [warm[name] for name in move.lanes])
            switches += switched
            under_way[move.job] = Busy(move.job, now, cost, now + job.seconds + cost, move.lanes)
            waiting.discard(move.job)
            begins[move.job], taken[move.job] = now, move.lanes
            if job.warm is not None:
                warm.update(dict.fromkeys(move.lanes, job.warm if job.cards == 1 else NOTHING))
        now = min(busy.ends for busy in under_way.values())
        for index in [index for index, busy in under_way.items() if busy.ends <= now]:
            del under_way[index]
    return Played(
        makespan=now,
        switches=switches,
        planning=planning,
        deciding=deciding,
        begins=begins,
        lanes=taken,
    )


def _switch(job: Job, warm: Sequence[str | None]) -> tuple[float, bool]:
    switched = job.warm not in (None, NOTHING) and any(
        there not in (None, NOTHING, job.warm) for there in warm
    )
    return (SWITCH if switched and job.cards == 1 else 0.0), switched
