"""The places of a run, one for each of xdist's specs: which are left, and why the others are given up. It sends nothing.

A worker and all its replacements have the same place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_cudaboot.rules.timetable import Job
from pytest_cudaboot.run.lanes import CARD, HOST, lane_of
from pytest_cudaboot.run.prepare import RESTARTS_PER_WORKER
from pytest_cudaboot.run.seams import Board


class Places:
    """Specs are told apart by their identity, since those of host workers are equal.

    :param specs: gives all of them, as soon as there are any.
    """

    def __init__(self, specs: Callable[[], Sequence[Any]]) -> None:
        self._specs = specs
        self._deaths: Counter[int] = Counter()
        self._given_up: dict[int, str] = {}

    @property
    def left(self) -> list[Any]:
        """By specs, not by the nodes alive: the replacement of a crashed worker is on its way."""
        return [spec for spec in self._specs() if id(spec) not in self._given_up]

    @property
    def cards(self) -> list[str]:
        """The cards that a worker has, or will have."""
        return [lane for lane in map(lane_of, self.left) if lane != HOST]

    def lanes(self, ready: Mapping[str, str]) -> list[tuple[str, str, bool]]:
        """Name, what it serves, and whether it is ready; a card has a lane also while its worker is replaced."""
        hosts = [(name, HOST, True) for name, lane in ready.items() if lane == HOST]
        return [*((name, name, name in ready) for name in self.cards), *hosts]

    def dies(self, spec: Any) -> str | None:
        """A worker has died there.

        :returns: why there is to be no other, or None.
        """
        self._deaths[id(spec)] += 1
        deaths = self._deaths[id(spec)]
        return None if deaths <= RESTARTS_PER_WORKER else f"its worker died {deaths} times"

    def give_up(self, spec: Any, why: str) -> bool:
        """Whether that is news; the first reason stays."""
        if id(spec) in self._given_up:
            return False
        self._given_up[id(spec)] = why
        return True

    def set_aside(self, lane: str, why: str) -> None:
        """Give up what a lane has."""
        for spec in self.left:
            if lane_of(spec) == lane:
                self.give_up(spec, why)

    def never(self, job: Job) -> str | None:
        """Why a job can not be had in this run, or None."""
        cards = self.cards
        serving = (
            cards if job.lane == CARD else [lane for lane in map(lane_of, self.left) if lane == job.lane]
        )
        if len(serving) >= job.cards and (job.cards == 1 or job.lane != HOST):
            return None
        if job.cards > 1:
            return f"{job.cards} cards are needed, and there are {len(cards)}"
        why = [why for spec in self._specs() if (why := self._lost(spec, job.lane))]
        return f"no worker for {job.lane!r}" + (f"; {why[0]}" if why else "")

    def _lost(self, spec: Any, lane: str) -> str | None:
        fits = lane_of(spec) != HOST if lane == CARD else lane_of(spec) == lane
        return self._given_up.get(id(spec)) if fits else None


def sift(pending: list[int], jobs: Sequence[Job], board: Board, places: Places) -> None:
    """Drop from what waits what will never go, and have that recorded."""
    for index in list(pending):
        if board.blocked(index):
            pending.remove(index)
        elif why := places.never(jobs[index]):
            pending.remove(index)
            board.impossible(index, why)
