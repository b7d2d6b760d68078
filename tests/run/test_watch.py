"""The watch over one card, and over several: what is told of which test, and what it does when a driver does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import CardLostError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes.aer import Link
from pytest_cudaboot.probes.counters import Reading
from pytest_cudaboot.rules.kernel_lines import KernelEvent
from pytest_cudaboot.run import watch as module
from pytest_cudaboot.run.watch import CardWatch

GPU = Gpu(index=0, uuid="GPU-a", name="L4", capability=(8, 9), memory=1, pci="00000000:01:00.0")
ADDRESS = "0000:01:00.0"


class Card:
    """In NVML's place."""

    def __init__(self) -> None:
        self.totals = {"pcie.bad_tlp": 35, "energy_mj": 5000}
        self.lost = False
        self.answers = threading.Event()
        self.answers.set()

    def read(self, uuid: str) -> Reading:
        self.answers.wait()
        if self.lost:
            raise CardLostError(uuid)
        return Reading(counters=dict(self.totals), gauges={"temperature_c": 40.0}, missing=frozenset())


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def watch(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CardWatch]:
    monkeypatch.setattr(module, "PATIENCE", 5.0)
    counters: Any = card
    watching = CardWatch(GPU, counters, Link(devices={ADDRESS: tmp_path}), hears=True)
    yield watching
    card.answers.set()
    watching.stop()


def test_only_what_is_added_is_told(card: Card, watch: CardWatch) -> None:
    watch.begin()
    card.totals["pcie.bad_tlp"] += 7
    card.totals["energy_mj"] += 1500
    seen = watch.end(failed=False)

    assert seen.change.deltas == {"pcie.bad_tlp": 7}
    assert seen.figures == {"energy_j": 1.5, "temperature_c": 40.0}


def test_a_total_that_fell_tells_nothing(card: Card, watch: CardWatch) -> None:
    watch.begin()
    card.totals["pcie.bad_tlp"] = 0

    assert watch.end(failed=False).change.deltas == {}


def test_an_xid_between_two_tests_is_neithers(watch: CardWatch) -> None:
    watch.hear(79)
    watch.begin()
    watch.hear(31)
    seen = watch.end(failed=False)

    assert (seen.before, seen.change.xids, watch.strays()) == ((79,), (31,), ())


def test_an_xid_after_the_last_test_is_kept(watch: CardWatch) -> None:
    watch.begin()
    watch.end(failed=False)
    watch.hear(79)

    assert watch.strays() == (79,)


def test_the_drivers_word_of_a_failed_test_is_waited_for(
    watch: CardWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE", 30.0)
    watch.begin()
    threading.Timer(0.05, watch.hear, [31]).start()

    assert watch.end(failed=True).change.xids == (31,)


def test_a_lost_card_is_told_as_lost(card: Card, watch: CardWatch) -> None:
    watch.begin()
    card.lost = True

    assert watch.end(failed=False).change.lost == "lost"
    assert watch.look() is None


def test_a_driver_that_does_not_answer_holds_up_nobody_for_long(
    card: Card, watch: CardWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.begin()
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    card.answers.clear()

    assert watch.end(failed=False).change.lost == "silent"


def test_a_line_of_the_kernels_log_is_shown_without_its_prefix(watch: CardWatch) -> None:
    line = f"3,9,9,-;nvidia {ADDRESS}: PCIe Bus Error: severity=Corrected"
    watch.begin()
    watch.read(KernelEvent(address=ADDRESS, kind="corrected", line=line), counts=True)
    watch.read(KernelEvent(address=ADDRESS, kind="xid", line="x;NVRM", xid=31), counts=False)
    seen = watch.end(failed=False)

    assert seen.change.deltas == {"log.corrected": 1}
    assert seen.change.xids == ()
    assert seen.figures["log"] == [line.partition(";")[2], "NVRM"]
