"""In which order to lay jobs out so that all of them end soonest, and what no order can beat. Pure."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.timetable import CARD, HOST, NOTHING, Job, Lane, Timetable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EFFORT = 40_000  # jobs laid out at most, about a second
EFFORT_A_SECOND = 800  # of what the run is expected to last: a short one is not worth a long search
WORTH = 0.05  # seconds; nobody notices what a better order could still gain
LATE = 0.8  # a job that ends in the last fifth may be why there is one
CLIMB = 50  # steps a job before it begins anew elsewhere, which only the few jobs of a short run come to
BOLD = 0.3  # of a job's seconds by which a step may be worse then: what is better may be behind it
PINNED = 0.2  # of the steps say on which lanes a job is to be, instead of when it is laid out
LAST = 0.6  # of the steps are alone, the others part of a larger one

Score = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """In which order jobs are laid out.

    :param lanes: of some of them, on which lanes; the others are laid out where they end first.
    """

    order: tuple[int, ...]
    lanes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def lay_out(self, jobs: Sequence[Job], lanes: Sequence[Lane]) -> Timetable:
        """From the very begin, as if nothing had happened yet."""
        return Timetable(jobs, lanes, range(len(jobs)), {}, kept=self.lanes).fill(self.order)


def arrange(jobs: Sequence[Job], lanes: Sequence[Lane], effort: int | None = None) -> Arrangement:
    """The best arrangement that is found: the best of some that are usually good, improved by chance.

    The same question has the same answer.

    :param effort: how many jobs may be laid out meanwhile.
    """
    tables = [(found.lay_out(jobs, lanes), found) for found in _candidates(jobs, _cards(lanes))]
    here = best = min(tables, key=lambda found: _score(found[0]))
    if effort is None:
        effort = min(EFFORT, int(EFFORT_A_SECOND * best[0].end))
    enough = bound(jobs, _cards(lanes)) + WORTH
    bold = BOLD * sum(job.seconds for job in jobs) / max(1, len(jobs))
    dice = random.Random(0)  # noqa: S311 - nothing secret, and the same each time
    for step in range(effort // max(1, len(jobs))):
        if best[0].end <= enough:
            break
        climb, place = divmod(step / (len(jobs) * CLIMB), 1)
        other = _varied(*here, jobs, lanes, dice) if place or not climb else _shuffled(best[1], dice)
        table = other.lay_out(jobs, lanes)
        slack = bold * (1 - place) * dice.random() if climb else 0.0
        if not place or (table.end - slack, table.spread) <= _score(here[0]):
            here = table, other
        best = min(best, here, key=lambda found: _score(found[0]))
    return best[1]


def bound(jobs: Sequence[Job], cards: int) -> float:
    """No schedule ends before this: the longest job, the critical path, all card-seconds over all cards."""
    load = sum(job.load for job in jobs) / max(1, cards)
    return max([load, *ranks(jobs)], default=0.0)


def ranks(jobs: Sequence[Job]) -> list[float]:
    """Seconds from the begin of each job to the end of the longest chain that waits for it."""
    followers = _followers(jobs)
    found: dict[int, float] = {}
    for index in _last_first(jobs):
        found[index] = jobs[index].seconds + max((found[other] for other in followers[index]), default=0.0)
    return [found[index] for index in range(len(jobs))]


def _cards(lanes: Sequence[Lane]) -> int:
    return sum(lane.serves != HOST for lane in lanes)


def _score(table: Timetable) -> Score:
    """Sooner is better; of equals, the one whose lanes end sooner: there a better one is not far."""
    return round(table.end, 6), table.spread


def _shuffled(found: Arrangement, dice: random.Random) -> Arrangement:
    return Arrangement(tuple(dice.sample(found.order, len(found.order))))


def _varied(
    table: Timetable, found: Arrangement, jobs: Sequence[Job], lanes: Sequence[Lane], dice: random.Random
) -> Arrangement:
    """A job or a few elsewhere in the order, or on other lanes; every other one that moves ends late, and goes earlier."""
    late = [index for index, slot in table.slots.items() if slot.end >= LATE * table.end]
    order, pinned = list(found.order), dict(found.lanes)
    while True:
        index = dice.choice(order)
        if dice.random() < PINNED:
            if pinned.pop(index, None) is None:
                offered = [lane.name for lane in lanes if lane.may_take(jobs[index])]
                pinned[index] = tuple(dice.sample(offered, min(jobs[index].cards, len(offered))))
        elif dice.random() < 1 / 2 and late:
            place = order.index(dice.choice(late))
            order.insert(dice.randrange(place + 1), order.pop(place))
        else:
            order.remove(index)
            order.insert(dice.randrange(len(order) + 1), index)
        if dice.random() < LAST:
            return Arrangement(tuple(order), pinned)


def _candidates(jobs: Sequence[Job], cards: int) -> list[Arrangement]:
    """Orders that are good where nothing speaks against them: the largest gangs, then the longest way to go."""
    rank, bound_rank, frees = ranks(jobs), _bound_ranks(jobs), _released(jobs)
    leaves = [job.warm or NOTHING for job in jobs]
    keys = (
        lambda index: (-jobs[index].cards, -rank[index]),
        lambda index: (0, -rank[index]),
        lambda index: (-jobs[index].cards, -rank[index] - frees[index] / max(1, cards)),
        lambda index: (-jobs[index].cards, -bound_rank[index]),
        lambda index: (0, -bound_rank[index]),
    )
    found = [sorted(range(len(jobs)), key=key) for key in keys]
    # Sorting is stable: what leaves the same lowerer warm together, in either order of the lowerers.
    alike = [sorted(found[0], key=lambda index: leaves[index], reverse=last) for last in (False, True)]
    return [Arrangement(tuple(order)) for order in (*found, *alike)]


def _bound_ranks(jobs: Sequence[Job]) -> list[float]:
    """Ranks, where what is bound to one card counts as a chain: one after another is how it will run."""
    found = ranks(jobs)
    loads: dict[str, float] = defaultdict(float)
    for index in sorted(range(len(jobs)), key=lambda index: found[index]):
        job = jobs[index]
        if job.lane not in (HOST, CARD):
            loads[job.lane] += job.seconds
            found[index] = max(found[index], loads[job.lane])
    return found


def _released(jobs: Sequence[Job]) -> list[float]:
    """Card-seconds that wait for each job, directly or not."""
    followers = _followers(jobs)
    below: dict[int, set[int]] = {}
    for index in _last_first(jobs):
        below[index] = set(followers[index]).union(*(below[other] for other in followers[index]))
    return [sum(jobs[other].load for other in below[index]) for index in range(len(jobs))]


def _followers(jobs: Sequence[Job]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        for need in job.after:
            found[need].append(index)
    return found


def _last_first(jobs: Sequence[Job]) -> list[int]:
    """Each job after all that wait for it."""
    return [*TopologicalSorter({index: job.after for index, job in enumerate(jobs)}).static_order()][::-1]
