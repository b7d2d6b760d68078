"""After a test its device process is asked whether it still works; what is broken is told once, and never reused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudaboot.errors import DeviceCrashError, DeviceGoneError, DeviceHangError, DevicePoisonedError
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.run import health
from pytest_cudaboot.run.devices import Devices
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.failures import classify
from pytest_cudaboot.run.handles import LowererHandle

# What a session is asked for decides what the lowerer finds broken after that.
LOWERER = """
import ctypes, os

class Lowerer:
    def __init__(self, config):
        self.broken = None

    def open_session(self, path, source):
        self.broken = path.name
        if path.name == "killed-later":
            os.posix_spawn("/bin/sh", ["sh", "-c", f"sleep 0.05; kill -9 {os.getpid()}"], os.environ)
        raise OSError("no such session")

    def faults(self):
        if self.broken == "endless":
            ctypes.PyDLL(None).sleep(300)
        if self.broken == "raising":
            raise RuntimeError("no idea")
        fault = {"gpu": "GPU-a", "code": 719, "name": "CUDA_ERROR_LAUNCH_FAILED", "call": "cuCtxSynchronize"}
        return [{**fault, "sticky": True}] if self.broken == "poisoned" else []

    def facts(self):
        return {"describe": {"platform": "cpu"}, "mapped": {}}

    def close(self):
        pass
"""
CONFIG = LowererConfig(name="xla", platform="cpu", shim="/s.so", implementation="lowerer:Lowerer")
WORDS = (
    "it leaves a sticky error in its device process, which was ended: "
    "GPU-a answers cuCtxSynchronize with 719 (CUDA_ERROR_LAUNCH_FAILED)"
)


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Devices]:
    (tmp_path / "lowerer.py").write_text(LOWERER)
    made = Devices({"PATH": os.defpath, "PYTHONPATH": str(tmp_path)}, None, tmp_path / "logs", "gw0")
    yield made
    made.leave()


def evidence(nodeid: str) -> Evidence:
    made = Evidence(deadline=0.0, nodeid=nodeid)
    made.allow(60.0)
    return made


def used(devices: Devices, what: str, nodeid: str = "first") -> tuple[LowererHandle, Evidence]:
    """A test that has done something."""
    recorder = evidence(nodeid)
    handle = devices.open(CONFIG, recorder)
    with pytest.raises(Exception, match="no such session"):
        handle.open_session(Path(what))
    return handle, recorder


def pid(devices: Devices) -> int:
    return int(devices.open(CONFIG, evidence("next")).call("hello")["pid"])


def test_what_works_stays_warm(devices: Devices) -> None:
    before = pid(devices)
    _, recorder = used(devices, "fine")

    assert devices.settle(recorder) is None
    assert pid(devices) == before


def test_a_sticky_error_is_told_once_and_the_next_starts_clean(devices: Devices) -> None:
    before = pid(devices)
    _, recorder = used(devices, "poisoned")
    found = devices.settle(recorder)

    assert isinstance(found, DevicePoisonedError)
    assert str(found) == WORDS
    assert recorder.notes["device"]["sticky"][0]["code"] == 719
    assert devices.settle(recorder) is None
    assert pid(devices) != before


def test_a_command_that_needs_the_card_does_not_hide_it(devices: Devices) -> None:
    _, recorder = used(devices, "poisoned")
    devices.retire()

    assert str(devices.settle(recorder)) == WORDS


def test_nothing_is_asked_of_a_process_that_nobody_used(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices.open(CONFIG, evidence("first"))
    monkeypatch.setattr("pytest_cudaboot.run.devices.broken_by", lambda _: pytest.fail("it was asked"))

    assert devices.settle(evidence("first")) is None


def test_a_process_that_can_not_be_asked_is_not_kept(devices: Devices) -> None:
    before = pid(devices)
    _, recorder = used(devices, "raising")
    found = devices.settle(recorder)

    assert isinstance(found, DevicePoisonedError)
    assert "a device process that can not be probed, and was ended: 'health' raised" in str(found)
    assert pid(devices) != before


def test_what_a_test_left_running_for_ever_is_a_hang(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_BUDGET", 0.3)
    _, recorder = used(devices, "endless")
    found = devices.settle(recorder)

    assert isinstance(found, DeviceHangError)
    assert classify(found, "first").cause == "hang"
    assert recorder.notes["device"]["verb"] == "health"


def test_a_process_that_dies_after_its_last_answer_is_a_crash_of_its_user(devices: Devices) -> None:
    handle, recorder = used(devices, "killed-later")
    handle._process._group.wait(10)
    found = devices.settle(recorder)

    assert isinstance(found, DeviceCrashError)
    assert "died of SIGKILL during 'health'" in str(found)


def test_what_an_earlier_test_has_broken_is_collateral(devices: Devices) -> None:
    handle, recorder = used(devices, "poisoned")
    devices.settle(recorder)
    with pytest.raises(DeviceGoneError, match=r"'mapped' was not sent: .* 719 .*\(under first\)$") as caught:
        handle.mapped()

    assert classify(caught.value, "second").cause == "collateral"
    assert classify(caught.value, "first").cause == "run"


def test_a_process_that_was_closed_in_order_is_nobodys_collateral(devices: Devices) -> None:
    handle, recorder = used(devices, "fine")
    devices.settle(recorder)
    devices.retire()
    with pytest.raises(DeviceGoneError, match=r"was closed$") as caught:
        handle.mapped()

    assert classify(caught.value, "second").cause == "run"
