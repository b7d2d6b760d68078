"""Every way in which a device process ends, as its client tells it; and what is left behind: nothing."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import (
    DeviceCrashError,
    DeviceError,
    DeviceHangError,
    ToolMissingError,
)
from pytest_cudaboot.probes.procfs import process_state
from tests.device.starting import BUDGET, Start, descriptors


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL", "SIGBUS"])
def test_a_crash_names_signal_and_verb_and_keeps_the_evidence(device: DeviceProcess, name: str) -> None:
    number = signal.Signals[name]
    with pytest.raises(DeviceCrashError, match=rf"died of {name} during 'crash'\non the way down") as caught:
        device.call("crash", budget=BUDGET, number=int(number))

    evidence = caught.value.evidence
    assert (evidence["returncode"], evidence["verb"], evidence["survivors"]) == (-number, "crash", [])
    assert evidence["log_tail"].startswith("on the way down")
    assert not device.alive


def test_a_segmentation_fault_shows_where_python_was(device: DeviceProcess) -> None:
    with pytest.raises(
        DeviceCrashError, match=r"Fatal Python error: Segmentation fault(?s:.)*in echo_address"
    ):
        device.call("echo_address", budget=BUDGET)


def test_an_exit_says_its_status(device: DeviceProcess) -> None:
    with pytest.raises(DeviceCrashError, match=r"exit status 3 during 'leave'"):
        device.call("leave", budget=BUDGET, status=3)


def test_a_hang_shows_its_stacks_and_is_killed(device: DeviceProcess) -> None:
    started = time.monotonic()
    with pytest.raises(DeviceHangError, match=r"did not answer 'hang' within 0.5 s; killed") as caught:
        device.call("hang", budget=0.5)

    assert time.monotonic() - started < 30  # with a debugger on a busy machine
    evidence = caught.value.evidence
    assert "service_under_test.py" in evidence["log_tail"]
    assert "service_under_test.py" in Path(evidence["stacks"]).read_text()
    assert evidence["debugger"] == "gdb" or evidence["debugger"].startswith("no stacks in C: ")
    assert re.search(r"line \d+ in hang", str(caught.value))
    assert process_state(device.pid) is None


def test_after_the_end_each_call_says_so_at_once(device: DeviceProcess) -> None:
    with pytest.raises(DeviceHangError):
        device.call("hang", budget=0.2)

    with pytest.raises(DeviceError, match=r"'echo' was not sent: device process \d+ did not answer 'hang'"):
        device.call("echo", budget=BUDGET, value=1)
    assert device.broken is not None


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("hush", {}, r"no longer answers \(the other end closed with 4 of 4 bytes missing\) during 'hush'"),
        ("torn", {}, r"exit status 0 during 'torn'"),
        ("babble", {"data": "ffffffff"}, r"no longer answers \(a frame of 4294967295 bytes was announced"),
        ("babble", {"data": "02000000" + b"{]".hex()}, r"\(a frame of 2 bytes makes no sense"),
        ("babble", {"data": "02000000" + b"[]".hex()}, r"\(a frame of 2 bytes makes no sense"),
    ],
)
def test_a_process_that_went_mad_is_ended(
    device: DeviceProcess, verb: str, arguments: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_cudaboot.device.client.EXIT_SECONDS", 0.5)
    with pytest.raises(DeviceCrashError, match=message):
        device.call(verb, budget=BUDGET, **arguments)

    assert process_state(device.pid) is None


def test_a_fork_that_keeps_the_channel_open_does_not_hide_the_crash(device: DeviceProcess) -> None:
    with pytest.raises(DeviceCrashError, match=r"died of SIGKILL during 'fork_and_crash'\n\d+") as caught:
        device.call("fork_and_crash", budget=BUDGET)

    assert process_state(int(caught.value.evidence["log_tail"])) is None


def test_grandchildren_end_with_the_process(device: DeviceProcess) -> None:
    grandchild = device.call("grandchild", budget=BUDGET)
    assert process_state(grandchild) is not None

    device.close()

    assert process_state(grandchild) is None


def test_an_interrupt_ends_the_process_since_its_answer_would_be_taken_for_another(
    device: DeviceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_cudaboot.device.wire.Channel.receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.call("echo", budget=BUDGET, value=1)

    assert not device.alive
    assert process_state(device.pid) is None


def test_control_c_is_the_controllers(device: DeviceProcess) -> None:
    assert device.call("interruptible", budget=BUDGET) == "still here"


def test_closing_is_in_order_and_may_be_repeated(device: DeviceProcess) -> None:
    device.close()
    device.close()

    assert device.evidence["returncode"] == 0
    assert device.log_path.read_text() == "closed in order\n"


def test_a_process_that_was_closed_says_so(device: DeviceProcess) -> None:
    device.close()

    with pytest.raises(DeviceError, match=r"'echo' was not sent: device process \d+ was closed"):
        device.call("echo", budget=BUDGET, value=1)


def test_a_service_that_can_not_be_made_is_a_crash_at_the_start(start: Start) -> None:
    with pytest.raises(
        DeviceCrashError, match=r"(?s)exit status 1 during 'start'.*RuntimeError: no such thing here"
    ):
        start("Failing")


def test_a_service_that_never_starts_is_a_hang(start: Start) -> None:
    with pytest.raises(DeviceHangError, match=r"did not answer 'start' within 0.5 s"):
        start("Slow", budget=0.5)


def test_a_missing_interpreter_is_named_and_leaves_nothing(start: Start) -> None:
    before = descriptors()
    with pytest.raises(ToolMissingError, match="no program '/nowhere/python'"):
        start(python="/nowhere/python")

    assert descriptors() == before


def test_no_descriptor_is_left_open(start: Start) -> None:
    start().close()
    before = descriptors()
    crashed = start()
    with pytest.raises(DeviceCrashError):
        crashed.call("leave", budget=BUDGET, status=1)

    assert descriptors() == before
