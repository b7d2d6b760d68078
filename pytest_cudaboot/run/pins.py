"""The controller's side of its workers: their cards, their plan, and what becomes of one that dies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_cudaboot.run.board import CellBoard
from pytest_cudaboot.run.controller import Controller
from pytest_cudaboot.run.evidence import read_property
from pytest_cudaboot.run.ledger import CRASHED


class WorkerPins:
    """Gives each worker its card, through the one thing that its replacement inherits: the xdist spec.

    :param leaving: hears of each worker that is to leave its card, and when it has.
    """

    def __init__(
        self,
        controller: Controller,
        pins: Sequence[dict[str, str]],
        leaving: Callable[[str, bool], None],
    ) -> None:
        self.controller = controller
        self.pins = pins
        self.leaving = leaving
        self.lanes: Any = None

    def cards(self, nodeid: str) -> Sequence[str]:
        """The cards that a test has; the lane of a host's worker is no card."""
        lanes: Sequence[str] = self.lanes.cards(nodeid)
        return [lane for lane in lanes if self.controller.plan.gpu(lane) is not None]

    def set_aside(self, uuid: str, why: str) -> None:
        """Send nothing more to a card."""
        self.lanes.set_aside(uuid, why)

    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        for spec, pin in zip(specs, self.pins, strict=True):
            spec.env.update(pin)

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["cudaboot"] = self.controller.plan.dumps()

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from pytest_cudaboot.run.scheduler import Lanes

        self.lanes = Lanes(config, log, self._start, self.controller.incomplete, self.leaving)
        return self.lanes

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.lanes.begun(nodeid)

    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        from pytest_cudaboot.run.scheduler import count_failure

        count_failure(self.controller.config, report)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        notes = read_property(report.user_properties).get("evidence", {})
        for lane, why in notes.get("set_aside", {}).items():
            self.lanes.set_aside(lane, f"{lane} is set aside: {why}")
        if report.when == CRASHED:
            self.lanes.crash_reported()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Before xdist waits for its workers: an interrupt may have reached this process alone."""
        from pytest_cudaboot.run.scheduler import dismiss_workers

        dismiss_workers(self.controller.config, now=self.controller.interrupted == "keyboard")

    def _start(self, collection: Sequence[str], worker: str) -> CellBoard:
        """What pytest itself does after errors of collection, which xdist leaves out."""
        controller = self.controller
        board = controller.begin_from_worker(collection, worker)
        broken = controller.collected.broken
        if broken and not controller.config.option.continue_on_collection_errors:
            raise pytest.Session.Interrupted(f"{broken} error{'s' if broken > 1 else ''} during collection")
        return board
