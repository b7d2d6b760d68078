"""A driver that answers some questions only: what it refuses is missing, and neither a lost card nor the end of a run."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from pytest_cudaboot.errors import BoxError, CardLostError
from pytest_cudaboot.probes.counters import FIELDS, Counters

CARD = "GPU-1"


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that has NVML refuse a call with a code; the calls around it are harmless."""
    handle = pynvml.c_nvmlDevice_t()
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda _: handle)
    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", object)
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", lambda *_: None)

    def refuse(name: str, code: int) -> Counters:
        def refused(*_: Any) -> Any:
            raise pynvml.NVMLError(code)

        monkeypatch.setattr(pynvml, name, refused)
        return Counters([CARD])

    return refuse


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND])
def test_counters_that_are_refused_are_missing(
    refusing: Any, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    counters = refusing("nvmlDeviceGetFieldValues", code)
    monkeypatch.setattr(Counters, "_gauge", lambda *_: None)

    assert counters.read(CARD).missing >= set(FIELDS.values())


def test_a_lost_card_is_lost(refusing: Any) -> None:
    counters = refusing("nvmlDeviceGetFieldValues", pynvml.NVML_ERROR_GPU_IS_LOST)

    with pytest.raises(CardLostError, match=CARD):
        counters.read(CARD)


def test_without_events_every_card_is_deaf(refusing: Any) -> None:
    counters = refusing("nvmlEventSetCreate", pynvml.NVML_ERROR_NOT_SUPPORTED)

    assert counters.watch_xids() == {CARD}


def test_events_that_end_are_told(refusing: Any) -> None:
    counters = refusing("nvmlEventSetWait_v2", pynvml.NVML_ERROR_UNKNOWN)
    counters.watch_xids()

    with pytest.raises(BoxError, match="tells of no XID any more"):
        counters.next_xid(0.0)


def test_a_driver_that_refuses_the_end_keeps_nobody(refusing: Any) -> None:
    counters = refusing("nvmlEventSetFree", pynvml.NVML_ERROR_GPU_IS_LOST)
    counters.watch_xids()

    counters.close()
