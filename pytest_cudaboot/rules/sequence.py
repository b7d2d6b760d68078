"""Jobs one after another: each has its lanes and its place in one order, and no gap is filled. Pure.

What comes of a sequence is found many times faster than a timetable, which looks for the first gap in which a job fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_cudaboot.rules.timetable import SWITCH, Job, Lane

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOBODY = -1  # no job

Places = tuple[int, ...]  # of lanes, by their number


class Lineup:
    """In which order jobs begin, and on which lanes. It is never changed; what is moved makes another.

    :param jobs: in this order, each behind all that it needs.
    :param lanes: of each job.
    :param place: that of each job, if it is known.
    """

    __slots__ = ("jobs", "lanes", "place")

    def __init__(
        self, jobs: Sequence[int], lanes: Mapping[int, Places], place: Mapping[int, int] | None = None
    ) -> None:
        self.jobs, self.lanes = jobs, lanes
        self.place = place or {index: place for place, index in enumerate(jobs)}

    def moved(self, index: int, place: int) -> Lineup:
        """A job at another place; those between the two make room."""
        jobs = list(self.jobs)
        jobs.insert(place, jobs.pop(self.place[index]))
        return Lineup(jobs, self.lanes)

    def exchanged(self, one: int, other: int) -> Lineup:
        """Two jobs, each at the place of the other one."""
        jobs = list(self.jobs)
        jobs[self.place[one]], jobs[self.place[other]] = other, one
        return Lineup(jobs, self.lanes)

    def on(self, index: int, new: int, *, instead_of: int) -> Lineup:
        """A job on another lane."""
        lanes = tuple(new if lane == instead_of else lane for lane in self.lanes[index])
        return Lineup(self.jobs, {**self.lanes, index: lanes}, self.place)


class Course:
    """What comes of a lineup.

    `done` and `last` say for each lane when it is done, and with which job; `start` when each job begins, `cause` which
    other job it waits for longest; `switches` are the jobs that another lowerer had to make room for.
    """

    __slots__ = ("_end", "_jobs", "_warm", "cause", "done", "last", "start", "switches")

    def __init__(self, jobs: Sequence[Job], lanes: Sequence[Lane], lineup: Lineup) -> None:
        self._jobs = jobs
        self._warm = [lane.warm for lane in lanes]
        self._end = [0.0] * len(jobs)
        self.done = [lane.free for lane in lanes]
        self.last = [NOBODY] * len(lanes)
        self.start = [0.0] * len(jobs)
        self.cause = [NOBODY] * len(jobs)
        self.switches: set[int] = set()
        for index in lineup.jobs:
            self._follow(jobs[index], index, lineup.lanes[index])

    def path(self, lane: int) -> list[int]:
        """Why a lane is done no sooner: its last job, what that waited for, and so on."""
        found, index = [], self.last[lane]
        while index != NOBODY:
            found.append(index)
            index = self.cause[index]
        return found

    def _follow(self, job: Job, index: int, lanes: Places) -> None:
        ends, done, begin, cause = self._end, self.done, 0.0, NOBODY
        for need in job.after:
            if ends[need] > begin:
                begin, cause = ends[need], need
        for lane in lanes:
            if done[lane] >= begin:
                begin, cause = done[lane], self.last[lane]
        end = begin + job.seconds
        leaves = job.leaves
        if leaves is not None:
            end += self._switch(index, leaves, lanes)
        for lane in lanes:
            done[lane], self.last[lane] = end, index
        self.start[index], ends[index], self.cause[index] = begin, end, cause

    def _switch(self, index: int, leaves: str, lanes: Places) -> float:
        """The seconds that it costs to have something else warm."""
        there = self._warm[lanes[0]]
        for lane in lanes:
            self._warm[lane] = leaves
        if not leaves or not there or there == leaves:
            return 0.0
        self.switches.add(index)
        return SWITCH
