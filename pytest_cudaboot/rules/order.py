"""In which order to lay jobs out so that all of them end soonest, and what no order can beat. Pure."""

from __future__ import annotations

import random
from collections import defaultdict
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.timetable import CARD, HOST, Job, Lane, Timetable

if TYPE_CHECKING:
    from collections.abc import Sequence

EFFORT = 40_000  # jobs laid out at most, about half a second
EFFORT_A_SECOND = 500  # of what the run is expected to last: a short one is not worth a long search
WORTH = 0.05  # seconds; nobody notices what a better order could still gain
LATE = 0.8  # a job that ends in the last fifth may be why there is one

Score = tuple[float, float]


def find_order(jobs: Sequence[Job], lanes: Sequence[Lane], effort: int | None = None) -> tuple[int, ...]:
    """The best order that is found: the best of some that are usually good, improved by chance.

    The same question has the same answer.

    :param effort: how many jobs may be laid out meanwhile.
    """
    if not jobs:
        return ()
    tables = [(_lay_out(jobs, lanes, order), order) for order in _candidates(jobs, _cards(lanes))]
    table, order = min(tables, key=lambda found: _score(found[0]))
    if effort is None:
        effort = min(EFFORT, int(EFFORT_A_SECOND * table.end))
    enough = bound(jobs, _cards(lanes)) + WORTH
    dice = random.Random(0)  # noqa: S311 - nothing secret, and the same each time
    for _ in range(effort // len(jobs)):
        if table.end <= enough:
            break
        other = _varied(order, table, dice)
        tried = _lay_out(jobs, lanes, other)
        if _score(tried) <= _score(table):
            table, order = tried, other
    return tuple(order)


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


def _lay_out(jobs: Sequence[Job], lanes: Sequence[Lane], order: Sequence[int]) -> Timetable:
    return Timetable(jobs, lanes, range(len(jobs)), {}).fill(order)


def _score(table: Timetable) -> Score:
    """Sooner is better; of equals, the one whose lanes end sooner: there a better one is not far."""
    return round(table.end, 6), table.spread


def _varied(order: Sequence[int], table: Timetable, dice: random.Random) -> list[int]:
    """One job in another place; every other time it is one that ends late, and goes earlier."""
    varied = list(order)
    if dice.random() < 1 / 2:
        late = [
            index for index in order if index in table.slots and table.slots[index].end >= LATE * table.end
        ]
        place = varied.index(dice.choice(late))
        varied.insert(dice.randrange(place + 1), varied.pop(place))
    else:
        varied.insert(dice.randrange(len(order)), varied.pop(dice.randrange(len(order))))
    return varied


def _candidates(jobs: Sequence[Job], cards: int) -> list[list[int]]:
    """Orders that are good where nothing speaks against them: the largest gangs, then the longest way to go."""
    rank, bound_rank, frees = ranks(jobs), _bound_ranks(jobs), _released(jobs)
    keys = (
        lambda index: (-jobs[index].cards, -rank[index]),
        lambda index: (0, -rank[index]),
        lambda index: (-jobs[index].cards, -rank[index] - frees[index] / max(1, cards)),
        lambda index: (-jobs[index].cards, -bound_rank[index]),
        lambda index: (0, -bound_rank[index]),
    )
    return [sorted(range(len(jobs)), key=key) for key in keys]


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
