"""Without workers (`-n 0`, a debugger, no xdist): the same order, the same blocking, in one process."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from pytest_cudaboot.run.controller import Controller
from pytest_cudaboot.run.lanes import HOST
from pytest_cudaboot.run.worker import Worker


class InProcess:
    """Lets the controller's board decide what the scheduler decides elsewhere."""

    def __init__(self, controller: Controller, worker: Worker) -> None:
        self.controller = controller
        self.worker = worker
        self.places: dict[str, int] = {}
        self.aside: str | None = None

    def cards(self, nodeid: str) -> Sequence[str]:
        """The one card there is, for a test that is not the host's."""
        board, gpus = self.controller.board, self.controller.plan.gpus
        on_card = board is not None and board.lane(self.places[nodeid]) != HOST
        return [gpu.uuid for gpu in gpus] if on_card else []

    def set_aside(self, uuid: str, why: str) -> None:
        """Run nothing more on the card."""
        self.aside = self.aside or why

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.places = {item.nodeid: place for place, item in enumerate(session.items)}
        self.controller.begin(self.worker.collection(session.items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        board, place = self.controller.board, self.places[item.nodeid]
        if board is None:
            return None
        if board.blocked(place):
            return _passed_over(item, nextitem)  # the board has recorded it
        if (cards := board.cards(place)) > 1:
            board.impossible(
                place, f"{cards} cards are needed, and without workers there is one process for one"
            )
            return _passed_over(item, nextitem)
        if self.aside is not None and board.lane(place) != HOST:
            board.impossible(place, self.aside)
            return _passed_over(item, nextitem)
        board.sent(place, self.worker.name, [self.worker.lane])
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self.controller.board is not None:
            self.controller.board.closed(self.places[nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """All tests have ended: some are run again, but not before the eyes of a debugger."""
        ran = yield
        option, board = session.config.option, self.controller.board
        stopped = session.shouldstop or session.shouldfail or option.usepdb or option.trace
        while board is not None and not stopped and (questions := board.panel.ask(self._here, self._here)):
            for question in questions:
                self.worker.again(session.items[question.index], None, question.number)
                board.panel.answered(question.number, self._here)
        return ran

    @property
    def _here(self) -> dict[str, str]:
        """The one card, if it can be had, and who has it."""
        well = self.worker.gpu is not None and self.aside is None
        return {self.worker.lane: self.worker.name} if well else {}


def _passed_over(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Nothing is run. What the item before it has left for this one goes, as far as the next one does not share it."""
    item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 - pytest has no public word for it
    return True
