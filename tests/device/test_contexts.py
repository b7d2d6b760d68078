"""What is asked of the driver about contexts, and what its answers mean. The driver here is an object."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest

from pytest_cudaboot.device.contexts import STICKY, faults

NOT_INITIALIZED, STUB, ILLEGAL, MISALIGNED, NO_MEMORY = 3, 34, 700, 716, 2


class Driver:
    """Answers each call with 0 or what `says` has for it, and remembers what it was asked."""

    def __init__(self, cards: int, says: dict[str, int] | None = None, *, active: bool = True) -> None:
        self.cards = cards
        self.active = active
        self.says = says or {}
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.asked.append(name)
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self.cards
            if name == "cuDevicePrimaryCtxGetState":
                arguments[2]._obj.value = int(self.active)
            if name == "cuGetErrorName":
                arguments[1]._obj.value = STICKY.get(arguments[0], "CUDA_ERROR_OTHER").encode()
            return self.says.get(name, 0)

        return call


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    def load(driver: Driver) -> Driver:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: driver)
        return driver

    return load


def test_a_process_without_the_driver_has_no_contexts() -> None:
    assert faults("libno-such-driver.so.1") == []


def test_the_driver_is_not_loaded_for_the_question() -> None:
    assert faults("libutil.so.1") == []
    with pytest.raises(OSError, match="dlopen"):
        ctypes.CDLL("libutil.so.1", mode=os.RTLD_NOLOAD)


@pytest.mark.parametrize("status", [NOT_INITIALIZED, STUB])
def test_a_driver_that_was_not_started_has_none_either(loaded: Any, status: int) -> None:
    loaded(Driver(1, {"cuDeviceGetCount": status}))

    assert faults() == []


def test_a_context_that_is_not_there_is_not_made(loaded: Any) -> None:
    driver = loaded(Driver(2, active=False))

    assert faults() == []
    assert "cuDevicePrimaryCtxRetain" not in driver.asked


def test_a_context_that_works_is_left_as_it_was(loaded: Any) -> None:
    driver = loaded(Driver(1))

    assert faults() == []
    assert driver.asked[-5:] == [
        "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent_v2",
        "cuCtxSynchronize",
        "cuCtxPopCurrent_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ]


@pytest.mark.parametrize(
    ("call", "told", "status"),
    [
        ("cuCtxSynchronize", "cuCtxSynchronize", ILLEGAL),
        ("cuCtxSynchronize", "cuCtxSynchronize", MISALIGNED),
        ("cuCtxSynchronize", "cuCtxSynchronize", NO_MEMORY),
        ("cuCtxPushCurrent_v2", "cuCtxPushCurrent", ILLEGAL),
        ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", ILLEGAL),
        ("cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxGetState", ILLEGAL),
        ("cuDeviceGetCount", "cuDeviceGetCount", ILLEGAL),
    ],
)
def test_whatever_call_learns_of_it_first(loaded: Any, call: str, told: str, status: int) -> None:
    loaded(Driver(1, {call: status}))
    (fault,) = faults()

    assert (fault.call, fault.code, fault.sticky) == (told, status, status != NO_MEMORY)
    assert fault.name == STICKY.get(status, "CUDA_ERROR_OTHER")


def test_each_card_is_asked(loaded: Any) -> None:
    loaded(Driver(2, {"cuCtxSynchronize": ILLEGAL}))

    assert [fault.gpu for fault in faults()] == ["GPU-00000000-0000-0000-0000-000000000000"] * 2
