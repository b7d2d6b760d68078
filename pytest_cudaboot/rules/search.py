"""The search for the order in which jobs are laid out so that all of them end soonest. Pure, and without a clock: the
same question has the same answer, and takes so many steps on any machine.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_cudaboot.rules.levelling import levelled
from pytest_cudaboot.rules.order import Arrangement, bound, candidates, followers
from pytest_cudaboot.rules.timetable import HOST, Job, Lane, Timetable

if TYPE_CHECKING:
    from collections.abc import Sequence

EFFORT = 60_000  # jobs laid out at most, about a second
EFFORT_A_SECOND = 2_500  # of what the run is expected to last: a short one is not worth a long search
LEVELLED = 16  # jobs that may follow one another in a lineup, instead of one that is laid out
FEW = 32  # lanes; on more of them it takes longer to find a place for a job
STARTS = 4  # of the usual orders are tried for a while each: which is the best to improve, only trying tells
WORTH = 1.003  # of what is possible; nobody notices what a better order could still gain
LATE = 0.8  # a job that ends in the last fifth may be why there is one
LATER = 0.8  # of the times only what ends when most cards are done is looked at
EARLIER = 0.7  # of the jobs that move go from there to an earlier place, the others from anywhere to anywhere
CLIMB = 50  # steps a job before it begins anew elsewhere, which only the few jobs of a short run come to
BOLD = 0.3  # of a job's seconds by which a step may be worse then: what is better may be behind it
PINNED = 0.2  # of the steps say on which lanes a job is to be, instead of when it is laid out
LAST = 0.6  # of the steps are alone, the others part of a larger one


class _Found(NamedTuple):
    """An arrangement, and what comes of it."""

    table: Timetable
    arrangement: Arrangement

    @property
    def score(self) -> tuple[float, float]:
        """Sooner is better; of equals, the one whose cards are done sooner."""
        return round(self.table.end, 6), self.table.mean_end

    @property
    def promise(self) -> float:
        """The less, the better are those that are not far: an end is worth as much as room on all cards before it."""
        return round(self.table.end + self.table.mean_end, 6)


def arrange(jobs: Sequence[Job], lanes: Sequence[Lane], effort: int | None = None) -> Arrangement:
    """The best arrangement that is found: the best of some that are usually good, improved by chance.

    :param effort: how many jobs may be laid out meanwhile, if there are few lanes; what is made more even is besides.
    """
    search = _Search(jobs, lanes)
    starts = sorted(map(search.found, candidates(jobs, search.cards)), key=lambda found: found.promise)
    if effort is None:
        effort = min(EFFORT, int(EFFORT_A_SECOND * starts[0].table.end))
    left = effort * FEW // (FEW + len(lanes)) // max(1, len(jobs))
    left = min(left, CLIMB * len(jobs) ** 3)  # of a few jobs there are few orders
    best, *others = search.tried(starts, left // 2)
    best = search.climbed(best, left - left // 2)
    steps = min(LEVELLED * effort // max(1, len(jobs)), CLIMB * len(jobs))
    return search.mended([best, *others], steps).arrangement


class _Search:
    def __init__(self, jobs: Sequence[Job], lanes: Sequence[Lane]) -> None:
        self._jobs = jobs
        self._lanes = lanes
        self._dice = random.Random(0)  # noqa: S311 - nothing secret, and the same each time
        self._mean = sum(job.seconds for job in jobs) / max(1, len(jobs))
        self.cards = sum(lane.serves != HOST for lane in lanes)
        self._enough = bound(jobs, self.cards) * WORTH
        after = followers(jobs)
        self._backwards = [replace(job, after=frozenset(after[index])) for index, job in enumerate(jobs)]

    def found(self, arrangement: Arrangement) -> _Found:
        return _Found(arrangement.lay_out(self._jobs, self._lanes), arrangement)

    def tried(self, starts: Sequence[_Found], steps: int) -> list[_Found]:
        """What comes of some arrangements, the first of which promise most; the best is the first again."""
        found = list(starts)
        for start in starts[: steps // 4]:
            if min(found, key=lambda other: other.score).table.end > self._enough:
                found.append(self._turned(start))
        found.sort(key=lambda other: other.promise)
        left = (steps - 2 * (len(found) - len(starts))) // STARTS
        return sorted((self.climb(start, left) for start in found[:STARTS]), key=lambda other: other.score)

    def mended(self, starts: Sequence[_Found], steps: int) -> _Found:
        """The best, or what becomes better than that by being made more even: how uneven it was tells little of it."""
        best = starts[0]
        for start in starts:
            best = self._better(best, start, steps // len(starts) // 2)
        return self._better(best, best, steps // 2)

    def _better(self, best: _Found, start: _Found, steps: int) -> _Found:
        if best.table.end <= self._enough:
            return best
        slots = start.table.slots
        other = self.found(levelled(self._jobs, self._lanes, slots, enough=self._enough, steps=steps))
        return min(best, other, key=lambda found: found.score)

    def _turned(self, found: _Found) -> _Found:
        """What last ends first in a run that goes backwards, and that run forwards again: a jolt that often helps."""
        ends = {index: slot.end for index, slot in found.table.slots.items()}
        order = sorted(ends, key=lambda index: -ends[index])
        back = Arrangement(tuple(order)).lay_out(self._backwards, self._lanes)
        ends = {index: slot.end for index, slot in back.slots.items()}
        return self.found(Arrangement(tuple(sorted(ends, key=lambda index: -ends[index]))))

    def climbed(self, begin: _Found, steps: int) -> _Found:
        """The best that is found from there on, or from anywhere else, if there is time for more than one climb."""
        a_climb = CLIMB * len(self._jobs)
        best = self.climb(begin, min(steps, a_climb))
        for begun in range(a_climb, steps, max(1, a_climb)):
            other = self.climb(self._shuffled(best), min(steps - begun, a_climb), bold=BOLD)
            best = min(best, other, key=lambda found: found.score)
        return best

    def climb(self, begin: _Found, steps: int, *, bold: float = 0.0) -> _Found:
        """The best that is found from there on by small changes, of which none promises less.

        :param bold: by how much of a job's seconds it may promise less at first.
        """
        here = best = begin
        for step in range(steps):
            if best.table.end <= self._enough:
                break
            other = self.found(self._varied(here))
            slack = bold * self._mean * (1 - step / steps) * self._dice.random()
            if other.promise - slack <= here.promise:
                here = other
            best = min(best, here, key=lambda found: found.score)
        return best

    def _shuffled(self, found: _Found) -> _Found:
        order = found.arrangement.order
        return self.found(Arrangement(tuple(self._dice.sample(order, len(order)))))

    def _varied(self, found: _Found) -> Arrangement:
        """A job or a few elsewhere in the order, or on other lanes; every other one that moves ends late, and goes earlier."""
        dice, table = self._dice, found.table
        usual = table.mean_end if dice.random() < LATER else LATE * table.end
        since = table.end - (table.end - usual) * dice.random()
        late = [index for index, slot in table.slots.items() if slot.end >= since]
        order, pinned = list(found.arrangement.order), dict(found.arrangement.lanes)
        while True:
            index = dice.choice(order)
            if dice.random() < PINNED:
                self._pin(index, pinned)
            elif dice.random() < EARLIER and late:
                place = order.index(dice.choice(late))
                order.insert(dice.randrange(place + 1), order.pop(place))
            else:
                order.remove(index)
                order.insert(dice.randrange(len(order) + 1), index)
            if dice.random() < LAST:
                return Arrangement(tuple(order), pinned)

    def _pin(self, index: int, pinned: dict[int, tuple[str, ...]]) -> None:
        """Have a job on lanes drawn by lot, or wherever it ends first, if it is on such lanes now."""
        if pinned.pop(index, None) is None:
            job = self._jobs[index]
            offered = [lane.name for lane in self._lanes if lane.may_take(job)]
            pinned[index] = tuple(self._dice.sample(offered, min(job.cards, len(offered))))
