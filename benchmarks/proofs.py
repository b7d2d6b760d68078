"""Closer bounds than the simple one: reasons for which no schedule of an instance can end earlier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_cudaboot.rules.order import bound, ranks
from pytest_cudaboot.rules.timetable import CARD, HOST, Job, Lane

LONGEST = 6  # jobs that are tried as the neighbour of what is bound to a card
Member = tuple[float, float, float]  # what comes before at least, its own load, what comes after at least


def closer_bound(jobs: Sequence[Job], lanes: Sequence[Lane]) -> float:
    """The best of them."""
    cards = [lane.name for lane in lanes if lane.serves != HOST]
    hosts = len(lanes) - len(cards)
    members = _members(jobs)
    on_cards = _energy((members[n] for n, job in enumerate(jobs) if job.lane != HOST), len(cards))
    on_host = _energy((members[n] for n, job in enumerate(jobs) if job.lane == HOST), hosts)
    alone = [_alone(jobs, members, card, len(cards)) for card in cards]
    free = (n for n, job in enumerate(jobs) if job.lane == CARD and job.cards == 1)
    longest = sorted(free, key=lambda n: -jobs[n].seconds)[:LONGEST]
    # A long job that may run anywhere runs on some card, beside all that is bound to that one.
    beside = [min(_energy([*there, members[n]], 1) for there in alone) for n in longest]
    return max(
        bound(jobs, len(cards)),
        _apart(jobs, len(cards)),
        on_cards,
        on_host,
        *beside,
        *(_energy(there, 1) for there in alone),
    )


def _apart(jobs: Sequence[Job], cards: int) -> float:
    """Whatever takes all cards runs beside no link of any chain on cards."""
    whole = [job.cards == cards > 1 for job in jobs]
    chains: dict[int, float] = {}

    def chain(index: int) -> float:
        if index not in chains:
            own = 0.0 if whole[index] or jobs[index].lane == HOST else jobs[index].seconds
            chains[index] = own + max((chain(need) for need in jobs[index].after), default=0.0)
        return chains[index]

    together = sum(job.seconds for job, alone in zip(jobs, whole, strict=True) if alone)
    return together + max((chain(index) for index in range(len(jobs))), default=0.0)


def _members(jobs: Sequence[Job]) -> list[Member]:
    heads: dict[int, float] = {}

    def head(index: int) -> float:
        if index not in heads:
            heads[index] = max((head(need) + jobs[need].seconds for need in jobs[index].after), default=0.0)
        return heads[index]

    tails = [rank - job.seconds for rank, job in zip(ranks(jobs), jobs, strict=True)]
    loads = [job.seconds if job.lane == HOST else job.load for job in jobs]
    return [(head(index), loads[index], tails[index]) for index in range(len(jobs))]


def _alone(jobs: Sequence[Job], members: Sequence[Member], card: str, cards: int) -> list[Member]:
    """What this very card has to do: what is bound to it, and what takes all cards."""
    there = (n for n, job in enumerate(jobs) if job.lane == card or job.cards == cards > 1)
    return [(members[n][0], jobs[n].seconds, members[n][2]) for n in there]


def _energy(members: Iterable[Member], lanes: int) -> float:
    """Nothing of a set begins before its smallest head or ends after its smallest tail; between them is its load."""
    known = sorted(members, key=lambda member: -member[2])
    best = 0.0
    for begin in {head for head, _, _ in known}:
        load = 0.0
        for head, own, tail in known:
            if head >= begin:
                load += own
                best = max(best, begin + load / max(1, lanes) + tail)
    return best
