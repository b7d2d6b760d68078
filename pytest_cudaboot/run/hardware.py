"""What the watch over the cards means for a run: evidence for each result, and cards that get nothing more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Gpu, HardwareRecord, Json, Ran, StartRecord, Status
from pytest_cudaboot.probes import nvml
from pytest_cudaboot.rules.hardware import load_policy
from pytest_cudaboot.run.monitor import Crossing, Monitor

QUARANTINED = "quarantined"


class Hardware:
    """Between the controller, which knows of tests, and the monitor, which knows of cards.

    :param cards: the cards that a test has, by node id; none for a test of the host.
    :param set_aside: sends nothing more to a card.
    :param record: writes a line of the ledger.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        cards: Callable[[str], Sequence[str]],
        set_aside: Callable[[str, str], None],
        record: Callable[[HardwareRecord], None],
    ) -> None:
        self._gpus = tuple(gpus)
        self._cards = cards
        self._set_aside = set_aside
        self._record = record
        self._monitor: Monitor | None = None
        self._told: set[tuple[str, str]] = set()
        self._aside: list[str] = []

    def start(self) -> Json:
        """Begin to watch.

        :returns: what nobody answers, by card, for the run's facts of the box.
        """
        try:
            root = nvml.simulated_root() or Path("/")
            self._monitor = Monitor(self._gpus, load_policy(), root)
        except BoxError as error:
            return {"unobservable": {gpu.uuid: [f"everything ({error})"] for gpu in self._gpus}}
        return {"unobservable": self._monitor.unobservable()}

    def stop(self) -> None:
        """No further test comes."""
        if self._monitor is None:
            return
        for crossing in self._monitor.rest():
            self._cross(crossing, "")
        self._monitor.stop()
        self._monitor = None

    def sent(self, record: StartRecord) -> None:
        """A test begins."""
        self.begin(record.nodeid, self._cards(record.nodeid))

    def begin(self, nodeid: str, cards: Sequence[str]) -> None:
        """It gets these cards, for the first time or again."""
        if self._monitor is not None and cards:
            self._monitor.begin(nodeid, cards)

    def ended(self, run: Ran) -> Ran:
        """A test has ended: the record of it with what was seen of its cards."""
        if self._monitor is None:
            return run
        failed = run.status in (Status.FAILED, Status.CRASHED)
        evidence, crossings = self._monitor.end(run.nodeid, failed=failed)
        for crossing in crossings:
            self._cross(crossing, run.nodeid)
        return replace(run, evidence={**run.evidence, **evidence}) if evidence else run

    def _cross(self, crossing: Crossing, nodeid: str) -> None:
        gpu, alarm = crossing.gpu, crossing.alarm
        whose = gpu.uuid if crossing.own else ""  # a bridge above several is told once
        if (whose, alarm.counter) in self._told:
            return
        self._told.add((whose, alarm.counter))
        if crossing.own and gpu.uuid not in self._aside:
            self._aside.append(gpu.uuid)
        self._record(
            HardwareRecord(
                gpu=gpu.uuid,
                pci=gpu.pci,
                counter=alarm.counter,
                seen=alarm.seen,
                words=alarm.words,
                reason=alarm.rule.reason,
                nodeid=nodeid,
                aside=crossing.own,
                left=tuple(card.pci for card in self._gpus if card.uuid not in self._aside),
            )
        )
        if crossing.own and nodeid:
            self._set_aside(gpu.uuid, f"{QUARANTINED}: {alarm.words}")
