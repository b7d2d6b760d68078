"""What is under way on which lane, and what a gang waits for. Bookkeeping only: it sends nothing and decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_cudaboot.rules.dispatch import Dispatcher, Move, expected_end
from pytest_cudaboot.rules.timetable import NOTHING, Job, Lane

COMING = 3.0  # seconds until the replacement of a dead worker has collected


@dataclass(slots=True)
class UnderWay:
    """An item that has lanes, from when they are held for it until its outcome is known.

    :param leaving: cards that their own workers have yet to leave to the gang.
    """

    lanes: tuple[str, ...]
    began: float
    leaving: set[str] = field(default_factory=set)


class Traffic:
    """Lanes are named: a card's by its UUID, whichever worker it has, a host's by its worker."""

    def __init__(
        self, jobs: Sequence[Job], lanes: Sequence[Lane], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._jobs = jobs
        self._clock = clock
        self._dispatcher = Dispatcher(jobs, lanes)
        self._warm: dict[str, str | None] = {}
        self.under_way: dict[int, UnderWay] = {}

    def moves(self, lanes: Sequence[tuple[str, str, bool]], waiting: Sequence[int]) -> list[Move]:
        """What goes now.

        :param lanes: name, what it serves, and whether its worker is there and could take something.
        """
        now = self._clock()
        until = {
            index: expected_end(job.began, self._jobs[index].seconds, now)
            for index, job in self.under_way.items()
        }
        busy = {name: until[index] for index, job in self.under_way.items() for name in job.lanes}
        state = [
            Lane(
                name=name,
                serves=serves,
                free=busy.get(name, now if ready else now + COMING),
                warm=self._warm.get(name),
            )
            for name, serves, ready in lanes
        ]
        if all(lane.free > now for lane in state):
            return []
        return self._dispatcher.moves(state, waiting=waiting, until=until, now=now)

    def begin(self, move: Move) -> UnderWay:
        """Hold the lanes for an item; a gang's partners have yet to leave theirs."""
        job = self._jobs[move.job]
        for name in move.lanes:
            if job.cards > 1:
                self._warm[name] = NOTHING
            elif job.warm is not None:
                self._warm[name] = job.warm
        held = UnderWay(move.lanes, self._clock(), set(move.lanes[1:]))
        self.under_way[move.job] = held
        return held

    def left(self, name: str) -> int | None:
        """A card has been left by its worker, or its worker is gone.

        :returns: the gang that can go now.
        """
        for index, job in self.under_way.items():
            if name in job.leaving:
                job.leaving.remove(name)
                return None if job.leaving else index
        return None

    def held(self, name: str) -> bool:
        """Whether an item has the lane."""
        return any(name in job.lanes for job in self.under_way.values())

    def lanes(self, index: int) -> tuple[str, ...]:
        """The lanes that an item has."""
        job = self.under_way.get(index)
        return job.lanes if job is not None else ()

    def end(self, index: int) -> None:
        """Its lanes are free again."""
        self.under_way.pop(index, None)

    def gone(self, name: str) -> int | None:
        """A worker is gone, and whatever was warm on its lane.

        :returns: the gang that it leads, if that has not been sent.
        """
        self._warm.pop(name, None)
        found = (index for index, job in self.under_way.items() if job.leaving and job.lanes[0] == name)
        return next(found, None)
