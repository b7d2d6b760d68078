"""Second opinions of one run, told to its ledger, its terminal, its heartbeat, its watchdog and whoever watches cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_cudaboot.model import AttemptRecord, Ruling, Status
from pytest_cudaboot.run.opinions import Asked, Opinions, Watchers
from pytest_cudaboot.run.seams import Question

if TYPE_CHECKING:
    from pytest_cudaboot.run.controller import Controller
    from pytest_cudaboot.run.items import Collection


class Watchdog(Protocol):
    """Who ends workers that hang; there is none where there are no workers."""

    def again(self, worker: str, nodeid: str) -> None:
        """It runs a test again."""

    def ended(self, worker: str) -> None:
        """It has run it."""

    def hung(self, worker: str) -> str | None:
        """Why a dead worker was killed, or None."""


def panel_of(controller: Controller, collection: Collection) -> Opinions:
    """Whoever decides what is run again."""
    asked = Asked(
        catalog=controller.catalog,
        items=collection.items,
        gpus=controller.plan.gpus,
        results=controller.results.done,
        waived=controller.waived,
    )
    return Opinions(asked, _Followers(controller).watchers(), folder=Path(controller.plan.workdir))


class _Followers:
    """Whoever follows a run, each told of its second opinions in its own words."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def watchers(self) -> Watchers:
        return Watchers(
            add=self._add,
            begun=self._begun,
            ended=self._ended,
            hung=self._hung,
            problem=lambda words: self._controller.problem_found(Ruling.ENVIRONMENT, words),
        )

    def _add(self, attempt: AttemptRecord) -> None:
        self._controller.ledger.add(attempt)
        self._controller.say(f"cudaboot: {_told(attempt)}")

    def _begun(self, worker: str, question: Question) -> None:
        controller = self._controller
        controller.heartbeat.begin(question.nodeid)
        controller.monitors.begin(question.nodeid)
        if controller.hardware is not None:
            controller.hardware.begin(question.nodeid, question.lanes)
        if controller.watchdog is not None:
            controller.watchdog.again(worker, question.nodeid)

    def _ended(self, worker: str, attempt: AttemptRecord) -> AttemptRecord:
        controller = self._controller
        controller.heartbeat.end(attempt.nodeid)
        if controller.watchdog is not None:
            controller.watchdog.ended(worker)
        seen = controller.monitors.ended(attempt)
        return controller.hardware.ended(seen) if controller.hardware is not None else seen

    def _hung(self, worker: str) -> str | None:
        watchdog = self._controller.watchdog
        return watchdog.hung(worker) if watchdog is not None else None


def _told(attempt: AttemptRecord) -> str:
    if attempt.status is Status.SKIPPED:
        return f"{attempt.nodeid} is not run again on {attempt.place_name}: {attempt.reason}"
    word = "holds" if attempt.status is Status.PASSED else f"fails ({attempt.cause or attempt.status})"
    return f"{attempt.nodeid}, run again on {attempt.place_name}, {word}"
