"""Jobs laid out on lanes: one after another, each as early as what was laid out before it allows. Pure, and guesswork:
durations are what is expected. What is sent when is `dispatch`'s business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

HOST = "host"
CARD = "card"  # any card
SWITCH = (
    2.0  # seconds that another lowerer on a card costs: a process is retired, and one is started and opened
)
NOTHING = ""  # what is warm after something that clears its card
_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """An item as a timetable knows it.

    :param lane: `host`, `card`, or the UUID of the card that it is bound to.
    :param cards: how many cards it takes at once; more than one makes it a gang.
    :param seconds: how long it is expected to take.
    :param warm: what it leaves warm on its card, or null where it leaves what is there.
    :param after: the jobs that have to end before it begins.
    """

    lane: str
    cards: int = 1
    seconds: float
    warm: str | None = None
    after: frozenset[int] = frozenset()

    @property
    def load(self) -> float:
        """Card-seconds that it takes."""
        return 0.0 if self.lane == HOST else self.cards * self.seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One worker, or one that is on its way.

    :param name: its own; a card's UUID does.
    :param serves: `host`, or its card's UUID.
    :param free: when it is expected to be idle.
    :param warm: what is warm on its card.
    """

    name: str
    serves: str
    free: float = 0.0
    warm: str | None = None

    def may_take(self, job: Job) -> bool:
        return self.serves == job.lane or (job.lane == CARD and self.serves != HOST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """A job's place."""

    start: float
    end: float
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Gap:
    """A free time of a lane, what is warm on its card then, and what comes after it needs to be warm."""

    begin: float
    end: float
    warm: str | None
    then: str | None = None

    def seconds(self, job: Job) -> float:
        """How long the job takes here."""
        cold = self.warm in (None, NOTHING) or job.warm in (None, NOTHING)
        return job.seconds if cold or self.warm == job.warm else job.seconds + SWITCH

    def start(self, job: Job, ready: float) -> float | None:
        """When the job can begin here, if it fits."""
        start = max(self.begin, ready)
        fits = start + self.seconds(job) <= self.end + _EPSILON
        return start if fits and not self._spoils(job) else None

    def _spoils(self, job: Job) -> bool:
        """Whether what comes after would have to wait for a switch that it does not wait for now."""
        nobody = (None, NOTHING)
        if self.then in nobody or job.warm in (*nobody, self.then):
            return False
        return self.warm in (*nobody, self.then)


class _Row:
    """What is still free of one lane: gaps, the last of them endless."""

    __slots__ = ("gaps", "name")

    def __init__(self, lane: Lane, now: float) -> None:
        self.name = lane.name
        self.gaps = [_Gap(max(lane.free, now), math.inf, lane.warm)]

    def earliest(self, job: Job, ready: float) -> tuple[float, float]:
        """When the job can begin here, and when it then ends."""
        for gap in self.gaps:
            start = gap.start(job, ready)
            if start is not None:
                return start, start + gap.seconds(job)
        raise AssertionError("the last gap is endless")

    def take(self, start: float, end: float, job: Job) -> None:
        place = next(n for n, gap in enumerate(self.gaps) if end <= gap.end + _EPSILON)
        gap = self.gaps[place]
        leaves = NOTHING if job.cards > 1 else gap.warm if job.warm is None else job.warm
        left = (
            [_Gap(gap.begin, start, gap.warm, gap.then if job.warm is None else job.warm)]
            if start - gap.begin > _EPSILON
            else []
        )
        right = [_Gap(end, gap.end, leaves, gap.then)] if gap.end - end > _EPSILON else []
        self.gaps[place : place + 1] = left + right


class Timetable:
    """Places jobs on lanes from `now` on.

    :param until: when the jobs that are under way are expected to end.
    :param waiting: the jobs that have yet to be placed; whatever is neither here nor under way has ended.
    :param kept: the lanes that a job is to have, where they are still there.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        lanes: Iterable[Lane],
        waiting: Collection[int],
        until: Mapping[int, float],
        *,
        now: float = 0.0,
        kept: Mapping[int, tuple[str, ...]] | None = None,
    ) -> None:
        self._jobs = jobs
        self._now = now
        self._waiting = set(waiting)
        self._until = dict(until)
        self._kept = kept or {}
        self._rows: dict[str, list[_Row]] = {HOST: [], CARD: []}
        self._named: dict[str, _Row] = {}
        for lane in lanes:
            row = self._named[lane.name] = _Row(lane, now)
            self._rows.setdefault(lane.serves, []).append(row)
            if lane.serves != HOST:
                self._rows[CARD].append(row)
        self.slots: dict[int, Slot] = {}
        self.end = max(self._until.values(), default=now)

    def possible(self, index: int) -> bool:
        """Whether there are lanes enough for a job."""
        job = self._jobs[index]
        return len(self._rows.get(job.lane, ())) >= job.cards

    def place(self, index: int) -> Slot:
        """Give a job the earliest slot that is left, after those that it waits for."""
        job = self._jobs[index]
        self._waiting.discard(index)
        ready = self._now
        for need in job.after:
            if need in self._waiting and self.possible(need):
                self.place(need)
            ready = max(ready, self._until.get(need, ready))
        rows = self._offered(index)
        slot = self._gang(job, ready, rows) if job.cards > 1 else self._single(job, ready, rows)
        self.slots[index] = slot
        self._until[index] = slot.end
        self.end = max(self.end, slot.end)
        return slot

    def fill(self, order: Iterable[int]) -> Timetable:
        """Place all jobs, in this order."""
        for index in order:
            if index in self._waiting and self.possible(index):
                self.place(index)
        return self

    @property
    def spread(self) -> float:
        """How long the lanes are in use, squared: the less, the more evenly."""
        return sum(row.gaps[-1].begin ** 2 for row in self._named.values())

    def _offered(self, index: int) -> list[_Row]:
        kept = [self._named[name] for name in self._kept.get(index, ()) if name in self._named]
        job = self._jobs[index]
        return kept if len(kept) == job.cards else self._rows[job.lane]

    def _single(self, job: Job, ready: float, rows: Sequence[_Row]) -> Slot:
        """The lane where it ends first; of equals, the one that would be idle for the shortest time."""
        best: tuple[float, float, float] | None = None
        chosen = rows[0]
        for row in rows:
            if best is not None and row.gaps[0].begin + job.seconds > best[0]:
                continue
            start, end = row.earliest(job, ready)
            key = (end, -row.gaps[0].begin, start)
            if best is None or key < best:
                best, chosen = key, row
        assert best is not None  # noqa: S101 - `possible` has been asked, so there is a row
        end, _, start = best
        chosen.take(start, end, job)
        return Slot(start=start, end=end, lanes=(chosen.name,))

    def _gang(self, job: Job, ready: float, rows: Sequence[_Row]) -> Slot:
        """The first moment at which enough cards are free for long enough; of more, those that are idle shortest."""
        events: list[tuple[float, int]] = []
        for gap in (gap for row in rows for gap in row.gaps):
            start = gap.start(job, ready)
            if start is not None:
                events += [(start, 0), (gap.end - job.seconds + 2 * _EPSILON, 1)]
        free, start = 0, ready
        for moment, closing in sorted(events):
            free += -1 if closing else 1
            if free >= job.cards:
                start = moment
                break
        fitting = [row for row in rows if row.earliest(job, start)[0] <= start + _EPSILON]
        fitting.sort(key=lambda row: -max(gap.begin for gap in row.gaps if gap.begin <= start + _EPSILON))
        end = start + job.seconds
        for row in fitting[: job.cards]:
            row.take(start, end, job)
        return Slot(start=start, end=end, lanes=tuple(row.name for row in fitting[: job.cards]))
