"""What is run on the virtual clock. Rules come first, figures after: nothing here is tuned to what comes out.

Three families. All have, for any number of cards, at least eight items a card, work before it on the host, and specs
that run on each card, where they take the same time.

`recorded` is this project's own suite as one H200 ran it (`one_h200.csv`: seconds and prerequisites as they were);
what runs on each card is repeated for each. The three specs of two cards could not run there, and get the longest
item's seconds. A seed makes the same suite on another day: each test's seconds times a log-normal factor, sigma 0.25.

`grown` is what such a suite may grow to, as far as anything that is known tells. Seconds are those of the record's
items on cards that took more than 0.3 s (80 of them: median 1.7, the longest four times the mean, as a suite has them
whose longest tests have a budget or are opt-in), each times the same factor as above. Of eight to thirty-two items a
card (the record has 96) half is the same spec on each card (of the record more than half); in the catalogue one spec in
sixteen that runs on cards takes two of them, and so it is here; besides, one gang takes half of the cards and one all
of them, which no spec does yet. One item in sixteen begins a chain of two to four, as deep as the catalogue's, every
other one after a compile on the host. Three builds on the host (a quarter as long) come first, and half of everything
else needs one. Where the critical path, or the longest job with all that is bound to the card beside it, is longer
than the cards' mean load, the simple bound says nothing, so such a draw is thrown away.

`hard` is the same with what is less likely: seconds are log-normal (median 8, sigma 1, 0.5 to 120), so that few items
have most of the work, and the longest is nine times the mean; eight to sixteen items a card, a quarter of them on each
card; pairs are one for every four cards and at least two. Only where the critical path is longer than the mean load a
draw is thrown away, and in some that are left no schedule comes near the simple bound: a test of 120 s runs on a card
that has another 40 s to do by itself, where the mean load is 130 s. They are held to what can be proved instead.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.rules.order import ranks
from pytest_cudaboot.rules.timetable import CARD, HOST, NOTHING, Job, Lane

HOST_LANES = 4
RECORD = Path(__file__).with_name("one_h200.csv")
PAIRS = 3
LEAST = 0.3  # seconds; what is shorter keeps no card busy


def lanes_of(cards: int, hosts: int = HOST_LANES) -> list[Lane]:
    """A box with so many cards."""
    names = [(f"GPU-{number}", f"GPU-{number}") for number in range(cards)]
    names += [(f"host-{number}", HOST) for number in range(hosts)]
    return [Lane(name=name, serves=serves) for name, serves in names]


def load(jobs: Sequence[Job], cards: int) -> float:
    """Card-seconds over cards."""
    return sum(job.load for job in jobs) / cards


def recorded(cards: int, seed: int) -> list[Job]:
    """The suite of this project, on so many cards."""
    dice = random.Random(f"recorded-{cards}-{seed}")
    with RECORD.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    jobs: list[Job] = []
    needs: list[str] = []
    members: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for row in rows:
        seconds = float(row["seconds"]) * dice.lognormvariate(0.0, 0.25)
        here = [HOST] if row["on"] == "host" else [CARD] if row["on"] == "any" else _names(cards)
        warm = row["lowerer"] or NOTHING if row["device"] == "1" else None
        for lane in here:
            members[row["spec"]].append((len(jobs), row["lowerer"], lane))
            jobs.append(Job(lane=lane, seconds=seconds, warm=warm))
            needs.append(row["needs"])
    longest = max(job.seconds for job in jobs)
    linked = [
        Job(
            lane=job.lane,
            seconds=job.seconds,
            warm=job.warm,
            after=frozenset(_needed(job, members, wanted.split())),
        )
        for job, wanted in zip(jobs, needs, strict=True)
    ]
    return [*linked, *(Job(lane=CARD, seconds=longest, cards=2, warm=NOTHING) for _ in range(PAIRS))]


def _names(cards: int) -> list[str]:
    return [f"GPU-{number}" for number in range(cards)]


def _needed(job: Job, members: dict[str, list[tuple[int, str, str]]], needs: Collection[str]) -> list[int]:
    """What is of the same lowerer and on the same card, or of none in particular."""
    own = job.warm or ""
    return [
        index
        for need in needs
        for index, lowerer, lane in members[need]
        if (not lowerer or not own or lowerer == own)
        and (lane in (HOST, CARD) or job.lane in (HOST, CARD) or lane == job.lane)
    ]


def grown(cards: int, seed: int) -> list[Job]:
    """The first draw of this seed that the simple bound says something of."""
    dice = random.Random(f"grown-{cards}-{seed}")
    manner = _Manner(seconds=_resampled(dice), a_card=(8, 32), on_each=1 / 2, pairs=1 / 16)
    while True:
        jobs = _Draw(dice, cards, manner).jobs
        bound_to = sum(job.seconds for job in jobs if job.lane == "GPU-0")
        longest = max(job.seconds for job in jobs if job.lane == CARD)
        if max(longest + bound_to, *ranks(jobs)) <= load(jobs, cards):
            return jobs


def hard(cards: int, seed: int) -> list[Job]:
    """The first draw of this seed whose critical path is not longer than the mean load."""
    dice = random.Random(f"invented-{cards}-{seed}")
    manner = _Manner(seconds=_heavy(dice), a_card=(8, 16), on_each=1 / 4, pairs=None)
    while True:
        jobs = _Draw(dice, cards, manner).jobs
        if max(ranks(jobs)) <= load(jobs, cards):
            return jobs


def _resampled(dice: random.Random) -> Callable[[], float]:
    with RECORD.open(newline="", encoding="utf-8") as stream:
        seen = [float(row["seconds"]) for row in csv.DictReader(stream) if row["on"] != "host"]
    seen = [seconds for seconds in seen if seconds > LEAST]
    return lambda: dice.choice(seen) * dice.lognormvariate(0.0, 0.25)


def _heavy(dice: random.Random) -> Callable[[], float]:
    return lambda: min(120.0, max(0.5, dice.lognormvariate(2.08, 1.0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Manner:
    """What one family has in its own way; `pairs` are so many for each item, or one for every four cards."""

    seconds: Callable[[], float]
    a_card: tuple[int, int]
    on_each: float
    pairs: float | None


class _Draw:
    def __init__(self, dice: random.Random, cards: int, manner: _Manner) -> None:
        self._dice = dice
        self._seconds = manner.seconds
        self.jobs: list[Job] = []
        a_card = dice.randint(*manner.a_card)
        self._builds = [self._add(HOST, self._seconds() / 4) for _ in range(3)]
        pairs = cards // 4 if manner.pairs is None else int(a_card * cards * manner.pairs)
        for size in (*[2] * max(2, pairs), cards // 2, cards):
            self._add(CARD, self._seconds(), self._root(), cards=size)
        for _ in range(int(a_card * manner.on_each)):
            self._each(_names(cards))
        for _ in range(a_card * cards // 16):
            self._chain()
        while len(self.jobs) < a_card * cards:
            self._add(CARD, self._seconds(), self._root(), warm=self._lowerer())

    def _each(self, names: Sequence[str]) -> None:
        seconds, root, warm = self._seconds(), self._root(), self._lowerer()
        for name in names:
            self._add(name, seconds, root, warm=warm)

    def _chain(self) -> None:
        before, warm = self._root(), self._lowerer()
        if self._dice.random() < 1 / 2:
            before = [self._add(HOST, self._seconds(), before)]
        for _ in range(self._dice.randint(2, 4)):
            before = [self._add(CARD, self._seconds(), before, warm=warm)]

    def _root(self) -> list[int]:
        return [self._dice.choice(self._builds)] if self._dice.random() < 1 / 2 else []

    def _lowerer(self) -> str:
        return self._dice.choice(("xla", "xla", "iree", NOTHING))

    def _add(
        self, lane: str, seconds: float, after: Sequence[int] = (), *, cards: int = 1, warm: str | None = None
    ) -> int:
        left = None if lane == HOST else NOTHING if cards > 1 else warm
        self.jobs.append(Job(lane=lane, cards=cards, seconds=seconds, warm=left, after=frozenset(after)))
        return len(self.jobs) - 1


def small(seed: int) -> tuple[list[Job], list[Lane]]:
    """Eight jobs on two or three cards and one host lane, in whole seconds: gangs, chains, and what is bound to a card."""
    dice = random.Random(seed)
    cards = dice.choice((2, 3))
    jobs: list[Job] = [Job(lane=HOST, seconds=float(dice.randint(1, 4)))]
    kinds = ["bound", "bound", "gang", *dice.choices(["any", "any", "gang", "bound"], k=4)]
    dice.shuffle(kinds)
    for kind in kinds:
        size = dice.randint(2, cards) if kind == "gang" else 1
        lane = f"GPU-{dice.randrange(cards)}" if kind == "bound" else CARD
        after = frozenset({dice.randrange(len(jobs))} if dice.random() < 2 / 5 else ())
        jobs.append(Job(lane=lane, cards=size, seconds=float(dice.randint(1, 9)), after=after))
    return jobs, lanes_of(cards, hosts=1)
