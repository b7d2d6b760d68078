"""What the scheduler asks of those who know the items, and the worker's loop of those who know the cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_cudaboot.rules.timetable import Job


class Board(Protocol):
    """What the scheduler asks about items; indices are positions in the collection."""

    def jobs(self) -> list[Job]:
        """The items as the dispatch sees them."""

    def blocked(self, index: int) -> bool:
        """Whether a prerequisite is broken. The first answer of yes is recorded, and closes the item."""

    def waits(self, index: int) -> bool:
        """Whether a prerequisite of the item is still open."""

    def impossible(self, index: int, reason: str) -> None:
        """Record that the item can not be had in this run."""

    def sent(self, index: int, worker: str) -> None:
        """The item is on its way to a worker."""

    def closed(self, index: int) -> None:
        """The item has ended, one way or another."""


class Device(Protocol):
    """What a worker has on cards."""

    def hold(self, uuids: Sequence[str]) -> None:
        """Have the cards of a gang; none of them means the worker's own again."""

    def leave(self) -> None:
        """Be done with whatever card it has."""
