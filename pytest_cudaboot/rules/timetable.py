"""Jobs laid out on lanes: one after another, each as early as what was laid out before it allows, in a gap if need be or
in turn. Pure, and guesswork: durations are what is expected. What is sent when is `dispatch`'s business.
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
ROOM = 1.01  # of the time that all work takes, spread evenly: some is lost to switches and waits
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

    @property
    def leaves(self) -> str | None:
        """What is warm on its cards when it has ended, or null where that is what was there: a gang clears them."""
        return NOTHING if self.cards > 1 else self.warm


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


_Gap = tuple[
    float, float, str | None, str | None
]  # begin, end, what is warm then, what comes next needs warm


class _Row:
    """What is still free of one lane: gaps, the last of them endless.

    `due` is when it has done what has been placed on it and what nobody else may do, if it is never idle.
    """

    __slots__ = ("due", "gaps", "in_turn", "name")

    def __init__(self, lane: Lane, now: float, *, in_turn: bool) -> None:
        self.name = lane.name
        self.in_turn = in_turn
        self.due = max(lane.free, now)
        self.gaps: list[_Gap] = [(self.due, math.inf, lane.warm, None)]

    def earliest(self, job: Job, ready: float, limit: float = math.inf) -> tuple[float, float] | None:
        """When the job can begin here, and when it then ends; None if that is after a limit."""
        for gap in self.gaps:
            start = max(gap[0], ready)
            if start + job.seconds > limit:
                return None
            end = _end(gap, job, start)
            if end is not None:
                return start, end
        raise AssertionError("the last gap is endless")

    def open_since(self, job: Job, start: float) -> float | None:
        """The begin of the gap in which the job can begin at that time, or None if it can not."""
        found = (
            gap[0] for gap in self.gaps if gap[0] <= start + _EPSILON and _end(gap, job, start) is not None
        )
        return next(found, None)

    def take(self, start: float, end: float, job: Job) -> None:
        place = next(n for n, gap in enumerate(self.gaps) if end <= gap[1] + _EPSILON)
        begin, close, warm, then = self.gaps[place]
        leaves = warm if job.leaves is None else job.leaves
        left: list[_Gap] = [(begin, start, warm, then if job.warm is None else job.warm)]
        right: list[_Gap] = [(end, close, leaves, then)]
        between = [] if self.in_turn else left
        self.gaps[place : place + 1] = [gap for gap in between + right if gap[1] - gap[0] > _EPSILON]


def _end(gap: _Gap, job: Job, start: float) -> float | None:
    """When a job ends that begins then, or None if it does not fit, or if what comes next would have to switch for it.

    A gang clears its cards, so that neither it nor what comes next has anything to switch from.
    """
    _, close, warm, then = gap
    own = job.leaves
    end = start + job.seconds
    if own:
        if warm and warm != own:
            end += SWITCH
        if then and then != own and (not warm or warm == then):
            return None
    return end if end <= close + _EPSILON else None


class Timetable:
    """Places jobs on lanes from `now` on.

    :param until: when the jobs that are under way are expected to end.
    :param waiting: the jobs that have yet to be placed; whatever is neither here nor under way has ended.
    :param kept: the lanes that a job is to have, where they are still there.
    :param in_turn: whether each job goes behind what was laid out before it on its lanes, though there be a gap.
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
        in_turn: bool = False,
    ) -> None:
        self._jobs = jobs
        self._now = now
        self._waiting = set(waiting)
        self._until = dict(until)
        self._kept = kept or {}
        self._rows: dict[str, list[_Row]] = {HOST: [], CARD: []}
        self._named: dict[str, _Row] = {}
        for lane in lanes:
            row = self._named[lane.name] = _Row(lane, now, in_turn=in_turn)
            self._rows.setdefault(lane.serves, []).append(row)
            if lane.serves != HOST:
                self._rows[CARD].append(row)
        for job in (jobs[index] for index in self._waiting if jobs[index].lane not in (HOST, CARD)):
            for row in self._rows.get(job.lane, ()):
                row.due += job.seconds
        self._horizon = self._expected()
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

    def _expected(self) -> float:
        """When the cards will have done everything, if the work is spread as evenly as what is bound to them allows."""
        rows = self._rows[CARD]
        load = sum(self._jobs[index].load for index in self._waiting)
        begin = sum(row.gaps[0][0] for row in rows)
        return max([ROOM * (load + begin) / max(1, len(rows)), *(row.due for row in rows)])

    @property
    def mean_end(self) -> float:
        """When a card is done, on average: what they wait and switch in between counts."""
        rows = self._rows[CARD]
        return sum(row.gaps[-1][0] for row in rows) / max(1, len(rows))

    def _offered(self, index: int) -> list[_Row]:
        kept = [self._named[name] for name in self._kept.get(index, ()) if name in self._named]
        job = self._jobs[index]
        return kept if len(kept) == job.cards else self._rows[job.lane]

    def _single(self, job: Job, ready: float, rows: Sequence[_Row]) -> Slot:
        """The lane where it ends first; of equals, the one that would be idle for the shortest time.

        But not one that would then be the last to be done with all that only it may do.
        """
        floats = job.lane == CARD
        horizon = max(self._horizon, self.end)
        best = (math.inf, math.inf, math.inf, math.inf)
        chosen = rows[0]
        for row in rows:
            level = max(horizon, row.due + job.seconds) if floats else 0.0
            if level > best[0]:
                continue
            found = row.earliest(job, ready, best[1] if level == best[0] else math.inf)
            if found is not None and (key := (level, found[1], -row.gaps[0][0], found[0])) < best:
                best, chosen = key, row
        _, end, _, start = best
        chosen.take(start, end, job)
        if floats:
            chosen.due += job.seconds
            self._horizon = max(self._horizon, chosen.due)
        return Slot(start=start, end=end, lanes=(chosen.name,))

    def _gang(self, job: Job, ready: float, rows: Sequence[_Row]) -> Slot:
        """The first moment at which enough cards are free for long enough; of more, those that are idle shortest."""
        events: list[tuple[float, int]] = []
        for gap in (gap for row in rows for gap in row.gaps):
            start = max(gap[0], ready)
            if _end(gap, job, start) is not None:
                events += [(start, 0), (gap[1] - job.seconds + 2 * _EPSILON, 1)]
        free, start = 0, ready
        for moment, closing in sorted(events):
            free += -1 if closing else 1
            if free >= job.cards:
                start = moment
                break
        fitting = [(since, row) for row in rows if (since := row.open_since(job, start)) is not None]
        fitting.sort(key=lambda found: -found[0])
        end = start + job.seconds
        chosen = [row for _, row in fitting[: job.cards]]
        for row in chosen:
            row.take(start, end, job)
            row.due += job.seconds
        return Slot(start=start, end=end, lanes=tuple(row.name for row in chosen))
