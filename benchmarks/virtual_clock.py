"""Whole runs on a clock that is only a number: the policy that the scheduler runs, on jobs that take what is said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_cudaboot.rules.dispatch import Dispatcher, expected_end
from pytest_cudaboot.rules.timetable import CARD, HOST, NOTHING, SWITCH, Job, Lane

HOST_LANES = 4


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
    """

    makespan: float
    switches: int
    begins: dict[int, float]
    lanes: dict[int, tuple[str, ...]]


def lanes_of(cards: int, hosts: int = HOST_LANES) -> list[Lane]:
    """A box with so many cards."""
    names = [(f"GPU-{number}", f"GPU-{number}") for number in range(cards)]
    names += [(f"host-{number}", HOST) for number in range(hosts)]
    return [Lane(name=name, serves=serves) for name, serves in names]


def play(jobs: Sequence[Job], lanes: Sequence[Lane], believed: Sequence[Job] | None = None) -> Played:
    """Run jobs to the end.

    :param believed: the same jobs with the durations that the policy is told; the real ones if not given.
    """
    told = jobs if believed is None else believed
    dispatcher = Dispatcher(told, lanes)
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
        for move in dispatcher.moves(state, waiting=waiting, until=until, now=now):
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
    return Played(makespan=now, switches=switches, begins=begins, lanes=taken)


def _switch(job: Job, warm: Sequence[str | None]) -> tuple[float, bool]:
    switched = job.warm not in (None, NOTHING) and any(
        there not in (None, NOTHING, job.warm) for there in warm
    )
    return (SWITCH if switched and job.cards == 1 else 0.0), switched


def heavy_tailed(cards: int, seed: int) -> list[Job]:
    """A run of twelve to twenty items a card, as a catalogue has them.

    Durations are log-normal (median 8 s, sigma 1.0, between 0.3 and 600 s; shorter for builds, links of a chain, and what runs on each card). About half of the card work is the same spec
    on each card, within 5 %; the rest may run on any card, a third of it in chains of two to five; some of the chains
    begin with a compile on the host. Gangs of two cards up to all of them take up to a tenth of the items.
    """
    dice = random.Random(f"{cards}-{seed}")
    jobs: list[Job] = []

    def seconds(scale: float = 1.0) -> float:
        return round(min(600.0, max(0.3, dice.lognormvariate(2.08, 1.0) * scale)), 3)

    def add(lane: str, took: float, after: Sequence[int] = (), size: int = 1) -> int:
        warm = (
            None if lane == HOST else dice.choice(("xla", "xla", "iree", NOTHING)) if size == 1 else NOTHING
        )
        jobs.append(Job(lane=lane, cards=size, seconds=took, warm=warm, after=frozenset(after)))
        return len(jobs) - 1

    wanted = dice.randint(12, 20) * cards
    builds = [add(HOST, seconds(0.2)) for _ in range(dice.randint(2, 4))]
    first = add(CARD, seconds(0.2), builds[:1])
    while len(jobs) < wanted:
        kind = dice.random()
        root = dice.choice([(), (), (first,), builds[-1:]])
        if kind < 0.5 / max(1.0, cards / 2):
            took, warm_after = seconds(0.25), root
            for card in range(cards):
                add(f"GPU-{card}", took * dice.uniform(0.95, 1.05), warm_after)
        elif kind < 0.6:
            compiled = [add(HOST, seconds(0.7), root)] if dice.random() < 0.5 else list(root)
            for _ in range(dice.randint(2, 5)):
                compiled = [add(CARD, seconds(0.5), compiled)]
        elif kind < 0.65 and cards > 1:
            size = dice.choice([2, 2, 2, min(4, cards), min(cards, 8)])
            add(CARD, seconds(0.5), root, size)
        else:
            add(CARD, seconds(), root)
    return jobs
