"""The shortest schedule of a small instance, by search over every decision; it shares nothing with the policy.

Somewhere among the shortest schedules is one in which each job begins at the start or when another one ends. So at
each of these moments every set of jobs that could begin is tried, and none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from pytest_cudaboot.rules.timetable import HOST, Job, Lane


class State(NamedTuple):
    """What is left: jobs that wait, and by lane the job there and its seconds to go (-1 and 0 if it is idle)."""

    waiting: frozenset[int]
    lanes: tuple[tuple[int, float], ...]


def shortest(jobs: Sequence[Job], lanes: Sequence[Lane]) -> float:
    """Seconds from the first begin to the last end; what a warm card would save is not looked at."""
    return _Search(jobs, lanes).least(State(frozenset(range(len(jobs))), ((-1, 0.0),) * len(lanes)))


class _Search:
    def __init__(self, jobs: Sequence[Job], lanes: Sequence[Lane]) -> None:
        self._jobs = jobs
        self._serves = [lane.serves for lane in lanes]
        self._known: dict[State, float] = {}

    def least(self, state: State) -> float:
        """Seconds from here to the end, at least."""
        if not state.waiting:
            return max(left for _, left in state.lanes)
        if state not in self._known:
            self._known[state] = min(took + self.least(after) for took, after in self._moves(state))
        return self._known[state]

    def _moves(self, state: State) -> Iterator[tuple[float, State]]:
        """Each way to go on, up to the next end of a job."""
        for begun in set(self._begun(state, sorted(state.waiting))):
            busy = [left for job, left in begun.lanes if job >= 0]
            if busy:
                step = min(busy)
                left = (
                    (job, seconds - step) if seconds > step else (-1, 0.0) for job, seconds in begun.lanes
                )
                yield step, State(begun.waiting, tuple(left))

    def _begun(self, state: State, candidates: Sequence[int]) -> Iterator[State]:
        """Each set of these jobs that can begin now, on each choice of lanes."""
        yield state
        open_jobs = state.waiting | {job for job, _ in state.lanes}
        for place, index in enumerate(candidates):
            job = self._jobs[index]
            if job.after & open_jobs:
                continue
            for chosen in combinations(self._idle(state, job), job.cards):
                row = list(state.lanes)
                for lane in chosen:
                    row[lane] = (index, job.seconds)
                yield from self._begun(State(state.waiting - {index}, tuple(row)), candidates[place + 1 :])

    def _idle(self, state: State, job: Job) -> list[int]:
        return [
            lane
            for lane, serves in enumerate(self._serves)
            if state.lanes[lane][0] < 0
            and (serves == job.lane or (job.lane not in (HOST, *self._serves) and serves != HOST))
        ]
