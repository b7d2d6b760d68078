"""What the scheduler asks of those who know the items, and the worker's loop of those who know the cards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_cudaboot.model import CellKey, Place
from pytest_cudaboot.rules.timetable import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A test that is to be run again.

    :param lanes: the cards that it is to run on, the lead's first.
    :param seconds: what it took before.
    """

    number: int
    index: int
    nodeid: str
    cell: CellKey
    place: Place
    lanes: tuple[str, ...]
    seconds: float

    @property
    def lane(self) -> str:
        """The card whose worker runs it."""
        return self.lanes[0]


class Panel(Protocol):
    """Who knows which tests are to be run again once all have ended."""

    @property
    def open(self) -> bool:
        """Whether something was asked, or is to be, that has no answer."""

    def ask(self, ready: Mapping[str, str], lanes: Collection[str]) -> list[Question]:
        """What goes now: cards whose worker is idle, with that worker, and all cards that have one or will."""

    def answered(self, number: int, lanes: Collection[str]) -> Mapping[str, str]:
        """A test has been run again; the cards that were set aside meanwhile, and why."""

    def lost(self, number: int, lanes: Collection[str]) -> None:
        """Its worker died of it."""

    def unsent(self, number: int, lanes: Collection[str]) -> None:
        """Its worker had died before it got it."""


class Board(Protocol):
    """What the sender asks about items; indices are positions in the collection."""

    @property
    def panel(self) -> Panel:
        """Who is asked for second opinions."""

    def jobs(self) -> list[Job]:
        """The items as the dispatch sees them."""

    def blocked(self, index: int) -> bool:
        """Whether a prerequisite is broken. The first answer of yes is recorded, and closes the item."""

    def waits(self, index: int) -> bool:
        """Whether a prerequisite of the item is still open."""

    def impossible(self, index: int, reason: str) -> None:
        """Record that the item can not be had in this run."""

    def sent(self, index: int, worker: str, lanes: Sequence[str]) -> None:
        """The item is on its way to a worker; a lane is a card's UUID, where it has one."""

    def closed(self, index: int) -> None:
        """The item has ended, one way or another."""


class Device(Protocol):
    """What a worker has on cards."""

    def hold(self, uuids: Sequence[str]) -> None:
        """Have the cards of a gang; none of them means the worker's own again."""

    def leave(self) -> None:
        """Be done with whatever card it has."""

    def again(self, item: Any, nextitem: Any, number: int) -> None:
        """Run a test again in a fresh device process, and leave what came of it under that number."""
