"""Orders in which to lay jobs out that are usually good, and what no order can beat. Pure; `search` improves on them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.timetable import CARD, HOST, NOTHING, Job, Lane, Timetable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Arrangement:
    """In which order jobs are laid out.

    :param lanes: of some of them, on which lanes; the others are laid out where they end first.
    :param in_turn: whether each goes behind what was laid out before it on its lanes, though there be a gap.
    """

    order: tuple[int, ...]
    lanes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    in_turn: bool = False

    def lay_out(self, jobs: Sequence[Job], lanes: Sequence[Lane]) -> Timetable:
        """From the very begin, as if nothing had happened yet."""
        return Timetable(jobs, lanes, range(len(jobs)), {}, kept=self.lanes, in_turn=self.in_turn).fill(
            self.order
        )


def bound(jobs: Sequence[Job], cards: int) -> float:
    """No schedule ends before this: the longest job, the critical path, all card-seconds over all cards."""
    load = sum(job.load for job in jobs) / max(1, cards)
    return max([load, *ranks(jobs)], default=0.0)


def ranks(jobs: Sequence[Job]) -> list[float]:
    """Seconds from the begin of each job to the end of the longest chain that waits for it."""
    after = followers(jobs)
    found: dict[int, float] = {}
    for index in _last_first(jobs):
        found[index] = jobs[index].seconds + max((found[other] for other in after[index]), default=0.0)
    return [found[index] for index in range(len(jobs))]


def candidates(jobs: Sequence[Job], cards: int) -> list[Arrangement]:
    """Orders that are good where nothing speaks against them: the longest way to go first, gangs before or after.

    None of them is good for all jobs, so each is tried.
    """
    rank, side = ranks(jobs), _sides(jobs)
    by_card, at_once = _bound_ranks(jobs)
    found = [_ordered(jobs, lambda n: (-rank[n],)), _ordered(jobs, lambda n: (-by_card[n],))]
    found += _sided(jobs, cards, at_once, side)
    found += _sided(jobs, cards, at_once, [-place for place in side])
    return [Arrangement(order) for order in dict.fromkeys(found)]


def _sided(
    jobs: Sequence[Job], cards: int, at_once: Sequence[float], side: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Those in which each lowerer comes once on each card; all that is bound to a card has to be done there."""
    rank, heads = ranks(jobs), _heads(jobs)
    yield _ordered(jobs, lambda n: (-at_once[n], side[n], -rank[n]))
    yield _ordered(jobs, lambda n: (jobs[n].cards == cards, -at_once[n], side[n], -rank[n]))
    yield _ordered(jobs, lambda n: (jobs[n].lane != HOST, side[n], -jobs[n].cards, -at_once[n]))
    apart = _ordered(jobs, lambda n: (-jobs[n].cards, -at_once[n], side[n], -rank[n]))
    ready = _ordered(jobs, lambda n: (-jobs[n].cards, -at_once[n], heads[n], side[n], -rank[n]))
    yield _behind_bound(jobs, apart)
    yield _behind_bound(jobs, ready)
    yield _between(jobs, ready)


def _ordered(jobs: Sequence[Job], key: Callable[[int], tuple[float, ...]]) -> tuple[int, ...]:
    return tuple(sorted(range(len(jobs)), key=key))


def _sides(jobs: Sequence[Job]) -> list[int]:
    """In which order what is left warm comes, so that what clears a card lies between two lowerers."""
    lowerers = sorted({job.warm for job in jobs if job.warm})
    half = len(lowerers) // 2
    places = {name: place for place, name in enumerate([*lowerers[:half], NOTHING, *lowerers[half:]])}
    return [places[job.warm or NOTHING] for job in jobs]


def _between(jobs: Sequence[Job], order: Sequence[int]) -> tuple[int, ...]:
    """The gangs where cards change their lowerer, for they clear them anyway."""
    before, gangs, after = _parted(jobs, order)
    return (*before, *gangs, *after)


def _behind_bound(jobs: Sequence[Job], order: Sequence[int]) -> tuple[int, ...]:
    """The same, but nothing that could run elsewhere comes before the gangs: what is bound ends on all cards at once."""
    before, gangs, after = _parted(jobs, order)
    bound_to = [index for index in before if jobs[index].lane != CARD]
    others = [index for index in before if jobs[index].lane == CARD]
    return (*bound_to, *gangs, *others, *after)


def _parted(jobs: Sequence[Job], order: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """What comes before what is bound to a card leaves another lowerer there, the gangs, and what comes then."""
    gangs = [index for index in order if jobs[index].cards > 1]
    rest = [index for index in order if jobs[index].cards == 1]
    bound_to = [index for index in rest if jobs[index].warm and jobs[index].lane != CARD]
    change = next((index for index in bound_to if jobs[index].warm != jobs[bound_to[0]].warm), None)
    place = 0 if change is None else rest.index(change)
    return rest[:place], gangs, rest[place:]


def _bound_ranks(jobs: Sequence[Job]) -> tuple[list[float], list[float]]:
    """Ranks, where what is bound to one card counts as a chain: one after another is how it will run.

    :returns: with each job as a link of that chain, and with each as long as the whole chain.
    """
    links = ranks(jobs)
    loads: dict[str, float] = defaultdict(float)
    for index in sorted(range(len(jobs)), key=lambda index: links[index]):
        job = jobs[index]
        if job.lane not in (HOST, CARD):
            loads[job.lane] += job.seconds
            links[index] = max(links[index], loads[job.lane])
    after = followers(jobs)
    whole: dict[int, float] = {}
    for index in _last_first(jobs):
        longest = jobs[index].seconds + max((whole[other] for other in after[index]), default=0.0)
        whole[index] = loads.get(jobs[index].lane, longest)
    return links, [whole[index] for index in range(len(jobs))]


def _heads(jobs: Sequence[Job]) -> list[float]:
    """Seconds that each job has to wait for others at least."""
    found: dict[int, float] = {}
    for index in reversed(_last_first(jobs)):
        found[index] = max((found[need] + jobs[need].seconds for need in jobs[index].after), default=0.0)
    return [found[index] for index in range(len(jobs))]


def followers(jobs: Sequence[Job]) -> dict[int, list[int]]:
    """What waits for each job."""
    found: dict[int, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        for need in job.after:
            found[need].append(index)
    return found


def _last_first(jobs: Sequence[Job]) -> list[int]:
    """Each job after all that wait for it."""
    return [*TopologicalSorter({index: job.after for index, job in enumerate(jobs)}).static_order()][::-1]
