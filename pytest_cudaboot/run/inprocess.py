"""Without workers (`-n 0`, a debugger, no xdist): the same order, the same blocking, in one process."""

from __future__ import annotations

import pytest

from pytest_cudaboot.run import items as cells
from pytest_cudaboot.run.controller import Controller
from pytest_cudaboot.run.worker import Worker


class InProcess:
    """Lets the controller's board decide what the scheduler decides elsewhere."""

    def __init__(self, controller: Controller, worker: Worker) -> None:
        self.controller = controller
        self.worker = worker
        self.places: dict[str, int] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        worker = self.worker
        records = [cells.record_of(item) for item in session.items]
        lanes = [cells.lane_of(item, worker.plan, worker.catalog) for item in session.items]
        self.places = {record.nodeid: place for place, record in enumerate(records)}
        self.controller.begin(records, lanes, worker.deselected)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        board, place = self.controller.board, self.places[item.nodeid]
        if board is None:
            return None
        if board.blocked(place):
            return True  # the board has recorded it, and nothing is run
        board.sent(place, self.worker.name)
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self.controller.board is not None:
            self.controller.board.closed(self.places[nodeid])
