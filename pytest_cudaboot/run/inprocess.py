"""Without workers (`-n 0`, a debugger, no xdist): the same order, the same blocking, in one process."""

from __future__ import annotations

import pytest

from pytest_cudaboot.run.controller import Controller
from pytest_cudaboot.run.worker import Worker


class InProcess:
    """Lets the controller's board decide what the scheduler decides elsewhere."""

    def __init__(self, controller: Controller, worker: Worker) -> None:
        self.controller = controller
        self.worker = worker
        self.places: dict[str, int] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.places = {item.nodeid: place for place, item in enumerate(session.items)}
        self.controller.begin(self.worker.collection(session.items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        board, place = self.controller.board, self.places[item.nodeid]
        if board is None:
            return None
        if board.blocked(place):
            return True  # the board has recorded it, and nothing is run
        if (cards := board.cards(place)) > 1:
            board.impossible(
                place, f"{cards} cards are needed, and without workers there is one process for one"
            )
            return True
        board.sent(place, self.worker.name)
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self.controller.board is not None:
            self.controller.board.closed(self.places[nodeid])
