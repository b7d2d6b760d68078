"""A lowerer inside a device process: what its shim does to itself stays there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import (
    DeviceCrashError,
    DeviceError,
    DeviceHangError,
    ShimError,
    UnsupportedError,
    UsageError,
)
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.model import to_json

BUDGET = 30.0

Start = Callable[..., DeviceProcess]
X = np.ones((2, 3), np.float32)
S = np.ones((), np.float32)


@pytest.fixture
def opened(device: Start, fake_shim: Path) -> DeviceProcess:
    process = device()
    process.call("open", budget=BUDGET, config=configured(fake_shim))
    return process


@pytest.fixture
def session(opened: DeviceProcess, artifact: Path) -> int:
    number: int = opened.call("session_open", budget=BUDGET, path=str(artifact))["session"]
    return number


def configured(shim: Path) -> Any:
    return to_json(LowererConfig(name="xla", platform="cpu", shim=str(shim)))


def invoke(process: DeviceProcess, session: int, fn: str = "twice", budget: float = BUDGET) -> Any:
    return process.call("invoke", budget=budget, session=session, fn=fn, arrays=[X, S])


def test_a_process_says_who_it_is(device: Start) -> None:
    process = device()
    hello = process.call("hello", budget=BUDGET)

    assert hello["pid"] == process.pid
    assert set(hello["versions"]) == {"pytest_cudaboot", "numpy"}


def test_a_session_tells_its_signature(opened: DeviceProcess, artifact: Path) -> None:
    told = opened.call("session_open", budget=BUDGET, path=str(artifact))

    assert told == {
        "session": 1,
        "signature": {
            "entry": "twice",
            "inputs": [{"shape": [2, 3], "dtype": "f32"}, {"shape": [], "dtype": "f32"}],
            "outputs": [{"shape": [2, 3], "dtype": "f32"}, {"shape": [], "dtype": "f32"}],
        },
    }


def test_arrays_go_in_and_come_out(opened: DeviceProcess, session: int) -> None:
    made = invoke(opened, session)

    assert [array.tolist() for array in made] == [[[2.0] * 3] * 2, 2.0]


def test_a_loop_runs_inside_and_feeds_back(opened: DeviceProcess, session: int) -> None:
    looped = opened.call(
        "repeat", budget=BUDGET, session=session, fn="twice", arrays=[X, S], n=4, feedback=[(0, 0)], loss=1
    )

    assert looped["arrays"][0].tolist() == [[16.0] * 3] * 2
    assert looped["losses"] == [2.0] * 4
    assert len(looped["seconds"]) == 4
    assert min(looped["seconds"]) > 0


def test_a_guards_message_is_the_errors(opened: DeviceProcess, session: int) -> None:
    with pytest.raises(
        ShimError, match=r"returned 4 \(device to host\)\n\[pjrt_ffi\] asked to fail$"
    ) as caught:
        invoke(opened, session, "code4")

    assert caught.value.code == 4
    assert opened.alive


def test_an_artifact_that_is_not_there_is_the_shims_to_refuse(opened: DeviceProcess) -> None:
    with pytest.raises(ShimError, match=r"made no session of '/gone.mlir'\n\[pjrt_ffi\] no file /gone.mlir"):
        opened.call("session_open", budget=BUDGET, path="/gone.mlir")


def test_a_crash_of_the_shim_is_a_failed_call(opened: DeviceProcess, session: int) -> None:
    with pytest.raises(
        DeviceCrashError, match=r"(?s)died of SIGSEGV during 'invoke'.*lowerers/shim.py.* in invoke"
    ):
        invoke(opened, session, "crash")


def test_an_abort_keeps_the_last_words(opened: DeviceProcess, session: int) -> None:
    with pytest.raises(
        DeviceCrashError, match=r"died of SIGABRT during 'invoke'\nCheck failed: replica_count > 0"
    ):
        invoke(opened, session, "abort")


def test_a_hang_of_the_shim_is_a_failed_call(opened: DeviceProcess, session: int) -> None:
    with pytest.raises(DeviceHangError, match=r"(?s)did not answer 'invoke' within 0.5 s; killed.*in invoke"):
        invoke(opened, session, "hang", budget=0.5)


def test_what_only_some_sessions_have(opened: DeviceProcess, session: int) -> None:
    made = opened.call(
        "session_call",
        budget=BUDGET,
        session=session,
        method="invoke_dp",
        function="twice",
        replicas=2,
        arrays=[X, S],
        shard=[True, True],
        outputs=[[2]],
    )

    assert made[0].tolist() == [2, 11]
    with pytest.raises(UnsupportedError, match="sessions of this lowerer have no 'fly'"):
        opened.call("session_call", budget=BUDGET, session=session, method="fly")


def test_a_null_session_can_be_offered_to_the_shim(opened: DeviceProcess, session: int) -> None:
    opened.call("session_call", budget=BUDGET, session=session, method="close")

    with pytest.raises(ShimError, match=r"\[pjrt_ffi\] NULL session"):
        invoke(opened, session)


def test_a_closed_session_is_no_session(opened: DeviceProcess, session: int) -> None:
    opened.call("session_close", budget=BUDGET, session=session)

    with pytest.raises(DeviceError, match=r"no session 1; open are: none"):
        invoke(opened, session)


def test_closing_the_process_releases_its_sessions(opened: DeviceProcess, session: int) -> None:
    invoke(opened, session)
    opened.close()

    assert opened.log_path.read_text() == "released after 1 calls\n"


def test_a_process_holds_one_lowerer(opened: DeviceProcess, fake_shim: Path) -> None:
    with pytest.raises(DeviceError, match="a lowerer is open already"):
        opened.call("open", budget=BUDGET, config=configured(fake_shim))


def test_without_a_lowerer_there_are_no_sessions(device: Start) -> None:
    with pytest.raises(DeviceError, match="no lowerer is open in this device process; call 'open' first"):
        device().call("session_open", budget=BUDGET, path="/x.mlir")


def test_an_unknown_lowerer_is_the_users_mistake(device: Start) -> None:
    unknown = to_json(LowererConfig(name="tpu", platform="cpu", shim=""))

    with pytest.raises(UsageError, match="no lowerer 'tpu'"):
        device().call("open", budget=BUDGET, config=unknown)


def test_the_shim_is_mapped_in_the_device_process_only(opened: DeviceProcess, fake_shim: Path) -> None:
    mapped = opened.call("mapped", budget=BUDGET)

    assert mapped["libfake.so"] == [str(fake_shim)]


def test_memory_is_told_in_bytes(opened: DeviceProcess) -> None:
    memory = opened.call("memory", budget=BUDGET)

    assert 10 << 20 < memory["resident"] <= memory["peak"]
