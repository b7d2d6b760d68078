"""A layout made more even: what keeps the last cards busy goes, bit by bit, to those that are done sooner. Pure.

It is no way to find a layout, only to mend one that `search` has found: it looks at why a card is done last, and at
what that card could give away, and tries what promises most. The same question has the same answer.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from pytest_cudaboot.rules.order import Arrangement, followers
from pytest_cudaboot.rules.sequence import NOBODY, Course, Lineup
from pytest_cudaboot.rules.timetable import CARD, HOST, NOTHING, SWITCH, Job, Lane, Slot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SOONER = 0.4  # of the changes only have something begin sooner where it is
NEAR = 2.0  # on average, how far from the last card and from the most promising change it is looked
FEW = 12  # jobs that could leave a card, cards that they could go to, and jobs there: no more are looked at
APART = 4.0  # the further from each other two jobs begin, the less does an exchange of them promise


class _Change(NamedTuple):
    """A job goes from one card to another.

    :param promise: the seconds squared by which it would be more even, if all else went on as it was.
    :param back: the job that comes in return.
    :param before: the job before which it goes; where `back` was, or at any place, if not given.
    """

    promise: float
    job: int
    old: int
    new: int
    back: int | None = None
    before: int | None = None


def levelled(
    jobs: Sequence[Job], lanes: Sequence[Lane], slots: Mapping[int, Slot], *, enough: float, steps: int
) -> Arrangement:
    """The most even arrangement that is found from a layout on.

    :param enough: seconds; it is no use to be done sooner.
    :param steps: so many changes are tried.
    """
    level = _Level(jobs, lanes, enough)
    lineup = level.improved(level.lineup_of(slots), steps)
    names = [lane.name for lane in lanes]
    there = {index: tuple(names[lane] for lane in lineup.lanes[index]) for index in lineup.jobs}
    return Arrangement(tuple(lineup.jobs), there, in_turn=True)


class _Level:
    def __init__(self, jobs: Sequence[Job], lanes: Sequence[Lane], enough: float) -> None:
        self._jobs, self._lanes, self._enough = jobs, lanes, enough
        self._cards = [number for number, lane in enumerate(lanes) if lane.serves != HOST]
        self._after = followers(jobs)
        self._dice = random.Random(0)  # noqa: S311 - nothing secret, and the same each time

    def lineup_of(self, slots: Mapping[int, Slot]) -> Lineup:
        number = {lane.name: place for place, lane in enumerate(self._lanes)}
        lanes = {index: tuple(number[name] for name in slot.lanes) for index, slot in slots.items()}
        return Lineup(sorted(slots, key=lambda index: (slots[index].start, slots[index].end)), lanes)

    def improved(self, lineup: Lineup, steps: int) -> Lineup:
        """Each change that makes nothing worse is kept; what else was thought of is kept until one makes it better."""
        course = Course(self._jobs, self._lanes, lineup)
        choices: dict[int, list[_Change]] = {}
        for _ in range(steps):
            late = sorted(self._late(course), key=lambda card: -course.done[card])
            if not late:
                break
            card = late[self._near(len(late))]
            if self._dice.random() < SOONER:
                other = self._sooner(lineup, course.path(card))
            else:
                if card not in choices:
                    changes = self._changes(lineup, course, card)
                    choices[card] = sorted(changes, key=lambda change: -change.promise)
                other = self._changed(lineup, choices[card])
            if other is None:
                continue
            then = Course(self._jobs, self._lanes, other)
            gain = self._uneven(course) - self._uneven(then)
            if gain > 0:
                choices = {}
            if gain >= 0:
                lineup, course = other, then
        return lineup

    def _late(self, course: Course) -> Iterator[int]:
        done, last = course.done, course.last
        return (card for card in self._cards if done[card] > self._enough and last[card] != NOBODY)

    def _uneven(self, course: Course) -> float:
        """The last card counts most, but what any other is late counts as well: it is in the way of the next change."""
        return sum((course.done[card] - self._enough) ** 2 for card in self._late(course))

    def _near(self, many: int) -> int:
        return min(many - 1, int(self._dice.expovariate(1 / NEAR)))

    def _range(self, lineup: Lineup, index: int) -> tuple[int, int]:
        """The first and the last place that a job can have, behind what it needs and before what needs it."""
        needs, waiting = self._jobs[index].after & lineup.place.keys(), self._after[index]
        first = max((lineup.place[need] for need in needs), default=-1) + 1
        final = min(
            (lineup.place[other] for other in waiting if other in lineup.place), default=len(lineup.jobs)
        )
        return first, final - 1

    def _may_be(self, lineup: Lineup, index: int, place: int) -> bool:
        first, final = self._range(lineup, index)
        return first <= place <= final

    def _sooner(self, lineup: Lineup, path: Sequence[int]) -> Lineup | None:
        """A job before another one that it waits for only since that has its lane, if what it needs allows it."""
        at = self._dice.randrange(len(path))
        index, lanes = path[at], set(lineup.lanes[path[at]])
        block = [*takewhile(lambda other: not lanes.isdisjoint(lineup.lanes[other]), path[at + 1 :])]
        if not block:
            return None
        other = self._dice.choice(block)
        if self._may_be(lineup, index, lineup.place[other]):
            return lineup.moved(index, lineup.place[other])
        if self._may_be(lineup, other, lineup.place[index]):
            return lineup.moved(other, lineup.place[index])
        return None

    def _changed(self, lineup: Lineup, choices: list[_Change]) -> Lineup | None:
        """One of the most promising changes, which is not tried again."""
        if not choices:
            return None
        _, index, old, new, back, before = choices.pop(self._near(len(choices)))
        # It was thought of for an earlier lineup: by now its jobs may be elsewhere.
        for moved, leaves, comes in ((index, old, new), *(() if back is None else ((back, new, old),))):
            if leaves not in lineup.lanes[moved] or comes in lineup.lanes[moved]:
                return None
        place, other = lineup.place, lineup.on(index, new, instead_of=old)
        if back is not None:
            other = other.on(back, old, instead_of=new)
            fits = self._may_be(lineup, index, place[back]) and self._may_be(lineup, back, place[index])
            return other.exchanged(index, back) if fits else other
        if before is None:
            return other.moved(index, self._dice.randint(*self._range(lineup, index)))
        to = place[before] - (place[index] < place[before])
        return other.moved(index, to) if self._may_be(lineup, index, to) else None

    def _changes(self, lineup: Lineup, course: Course, card: int) -> Iterator[_Change]:
        """What may have a card done sooner."""
        there: dict[int, list[int]] = defaultdict(list)
        for index in lineup.jobs:
            if self._jobs[index].lane == CARD:
                for lane in lineup.lanes[index]:
                    there[lane].append(index)
        sooner = [other for other in self._cards if course.done[other] < course.done[card]]
        path = course.path(card)
        for index in course.switches.intersection(path):
            yield from self._cleared(index, lineup.lanes[index][0], there)
        for index in self._some([index for index in path if self._jobs[index].lane == CARD]):
            for old in lineup.lanes[index]:
                for new in self._some(sooner):
                    room = course.done[card] - course.done[new]
                    if new not in lineup.lanes[index]:
                        others = [other for other in self._some(there[new]) if old not in lineup.lanes[other]]
                        yield from self._traded(_Change(0.0, index, old, new), room, others, course)

    def _some(self, of: Sequence[int]) -> Sequence[int]:
        """Few enough of them that to think of changes takes no longer than to try them."""
        return self._dice.sample(of, FEW) if len(of) > FEW else of

    def _cleared(self, index: int, card: int, there: Mapping[int, Sequence[int]]) -> Iterator[_Change]:
        """Something short from another card before what has to switch, so that it need not."""
        for old, others in there.items():
            for other in others if old != card else ():
                gain = SWITCH - self._jobs[other].seconds
                if gain > 0 and self._jobs[other].leaves == NOTHING and self._jobs[other].cards == 1:
                    yield _Change(gain * SWITCH, other, old, card, before=index)

    def _traded(
        self, change: _Change, room: float, others: Sequence[int], course: Course
    ) -> Iterator[_Change]:
        """A job to a card that is done that much sooner, for nothing or for something shorter."""
        index = change.job
        seconds = self._jobs[index].seconds
        if seconds < room:
            yield change._replace(promise=seconds * (room - seconds))
        for other in others:
            less = seconds - self._jobs[other].seconds
            if 0 < less < room and self._jobs[other].leaves == self._jobs[index].leaves:
                apart = abs(course.start[index] - course.start[other]) / self._enough
                yield change._replace(promise=less * (room - less) * math.exp(-APART * apart), back=other)
