"""What is sent to workers, and when: a test, a gang's when its partners have left their cards, in the end questions.

It knows a worker by the name of its lane, and nothing of xdist: whoever has the workers tells who lives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_cudaboot.rules.dispatch import Move
from pytest_cudaboot.rules.timetable import Lane
from pytest_cudaboot.run.asking import Asking
from pytest_cudaboot.run.instructions import AGAIN, LEAVE, Instruction, to_run, to_run_again
from pytest_cudaboot.run.places import Places, sift
from pytest_cudaboot.run.seams import Board, Question
from pytest_cudaboot.run.traffic import Traffic


@dataclass(frozen=True, kw_only=True, slots=True)
class Living:
    """A worker that lives and has collected.

    :param lane: what it serves.
    :param idle: whether it has done all that it was told.
    """

    worker: str
    lane: str
    idle: bool


class Workers(Protocol):
    """Who has the workers of a run."""

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to be sent."""

    def living(self) -> Mapping[str, Living]:
        """By the names of lanes."""

    def tell(self, name: str, instruction: Instruction) -> None:
        """Tell the worker of a lane; one that has just died is told of later, with what it had been told."""


class Sender:
    """An item is a position in the collection, and goes when its worker is idle: one at a time.

    :param pending: what has not been sent; it is shared, and what is sent is taken out.
    """

    def __init__(self, board: Board, places: Places, workers: Workers, pending: list[int]) -> None:
        self._board = board
        self._places = places
        self._workers = workers
        self._pending = pending
        self._jobs = board.jobs()
        self._crashed: list[int] = []  # items whose worker died, and whose report is not made yet
        self._begun: set[int] = set()  # items that a worker has said it is at work on
        self._leaving: set[str] = set()  # lanes whose worker was told to leave its card, and has not yet
        lanes = places.lanes({name: one.lane for name, one in workers.living().items()})
        self._traffic = Traffic(self._jobs, [Lane(name=name, serves=serves) for name, serves, _ in lanes])
        self._asking = Asking(board.panel, lambda: places.cards, self._again)

    @property
    def busy(self) -> bool:
        """Whether something waits, is under way, or is asked."""
        return bool(self._pending or self._traffic.under_way or self._board.panel.open)

    def lanes(self, index: int) -> tuple[str, ...]:
        """The lanes that an item has that is under way; the first is the lead's."""
        return self._traffic.lanes(index)

    # -- what is told ------------------------------------------------------------------------------------------

    def begun(self, index: int) -> None:
        """A worker has said that it is at work on an item."""
        self._begun.add(index)

    def ended(self, name: str, token: int) -> None:
        """A worker has done what it was told."""
        if token == LEAVE:
            self._left(name)
        elif token <= AGAIN:
            for lane, why in self._asking.answered(token).items():
                self._places.set_aside(lane, why)
        else:
            self._closed(token)
        self.dispatch()

    def gone(self, name: str, sent: Sequence[int]) -> int | None:
        """A worker has died.

        :param sent: the tokens of what it had been told.
        :returns: the item that it died of, whose report is to be made before anything else is sent.
        """
        if (gang := self._traffic.gone(name)) is not None:
            self._requeue(gang)
        self._asking.gone(name)
        if LEAVE in sent:  # what it had on the card dies with it; whoever comes next waits until that is so
            self._left(name)
        for token in sent:
            if token <= AGAIN:
                self._asking.lost(token)
            elif token in self._begun:
                self._crashed.append(token)
            elif token >= 0:  # its worker had died before: that is no fault of the item
                self._requeue(token)
        if self._crashed:
            return self._crashed[-1]
        self.dispatch()
        return None

    def crash_reported(self) -> None:
        """The report of an item that its worker died of has been made."""
        while self._crashed:
            self._closed(self._crashed.pop())
        self.dispatch()

    # -- what is sent ------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Send what can go now."""
        if self._workers.stopped or self._crashed:
            return
        sift(self._pending, self._jobs, self._board, self._places)
        lanes = self._places.lanes({name: one.lane for name, one in self._ready().items()})
        for move in self._traffic.moves(lanes, self._pending):
            if not self._board.waits(move.job):
                self._begin(move)
        if not (self._pending or self._traffic.under_way):  # all tests have ended: some are run again
            idle = {name: one.worker for name, one in self._ready().items() if one.idle}
            self._asking.ask(idle, self._clear)

    def _ready(self) -> dict[str, Living]:
        """Who could take something, but for those who still leave their card to a gang that is gone.

        What the others do now is the traffic's business.
        """
        return {
            name: one
            for name, one in self._workers.living().items()
            if name not in self._leaving or self._traffic.held(name)
        }

    def _begin(self, move: Move) -> None:
        """Send an item; for a gang have the partners leave their cards first."""
        self._pending.remove(move.job)
        held = self._traffic.begin(move)
        for name in tuple(held.leaving):
            if name in self._ready():
                self._clear(name)
            else:  # its card is held all the same, and a replacement gets nothing
                held.leaving.discard(name)
        if not held.leaving:
            self._send(move.job)

    def _clear(self, name: str) -> None:
        """Have a worker leave its card to a gang."""
        self._leaving.add(name)
        self._workers.tell(name, LEAVE)

    def _left(self, name: str) -> None:
        self._leaving.discard(name)
        if (gang := self._traffic.left(name)) is not None:
            self._send(gang)
        self._asking.left(name)

    def _send(self, index: int) -> None:
        lanes = self._traffic.under_way[index].lanes
        lead = self._ready().get(lanes[0])
        if lead is None:  # it has died since, and that is told next
            self._requeue(index)
            return
        self._board.sent(index, lead.worker, lanes)
        self._workers.tell(lanes[0], to_run(index, lanes))

    def _again(self, question: Question) -> bool:
        """Send a question, if its worker lives."""
        lives = question.lane in self._ready()
        if lives:
            self._workers.tell(question.lane, to_run_again(question))
        return lives

    def _requeue(self, index: int) -> None:
        """An item that nobody has begun goes to the next worker."""
        self._traffic.end(index)
        self._pending.append(index)

    def _closed(self, index: int) -> None:
        """An item has ended, one way or another."""
        self._board.closed(index)
        self._traffic.end(index)
