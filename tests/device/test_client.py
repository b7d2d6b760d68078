"""The device process as its client sees it: answers, refusals, what it inherits, and its pin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess, prove_pin
from pytest_cudaboot.errors import (
    DeviceError,
    HostMemoryError,
    PinError,
    ShimError,
    UnsupportedError,
)
from tests.device.starting import BUDGET, Start


def test_plain_data_comes_back_as_it_went(device: DeviceProcess) -> None:
    value = {"a": [1, 2.5, None, True, "é\ud800", {"nan": float("inf")}], "b": []}

    assert device.call("echo", budget=BUDGET, value=value) == value


def test_arrays_come_back_with_shape_and_type(device: DeviceProcess) -> None:
    arrays: list[Any] = [np.arange(6).reshape(2, 3), np.float32(2.5), np.zeros((0, 4)), np.ones((2, 2)).T]
    back: list[Any] = device.call("echo", budget=BUDGET, value={"arrays": arrays})["arrays"]

    assert [(a.shape, a.dtype) for a in back] == [(a.shape, a.dtype) for a in arrays]
    assert [a.tolist() for a in back] == [a.tolist() for a in arrays]


def test_results_outlive_the_next_call(device: DeviceProcess) -> None:
    first = device.call("double", budget=BUDGET, arrays=[np.full(1000, 3, np.float32)])[0]
    device.call("double", budget=BUDGET, arrays=[np.full(1000, 5, np.float32)])

    assert set(first) == {6}


def test_arguments_may_be_answers(device: DeviceProcess) -> None:
    short, long = np.zeros(10), np.ones(1000)
    back = device.call("swapped", budget=BUDGET, first=short, second=long)

    assert [a.tolist() for a in back] == [long.tolist(), short.tolist()]


def test_the_arena_grows_from_either_side(device: DeviceProcess) -> None:
    floats = 3_000_000
    grown_there = device.call("filled", budget=BUDGET, size=floats)
    grown_here = device.call("double", budget=BUDGET, arrays=[np.ones(4 * floats, np.float32)])[0]

    assert (grown_there.sum(), grown_here.sum()) == (floats, 8 * floats)


def test_a_service_can_not_write_into_its_arguments(device: DeviceProcess) -> None:
    with pytest.raises(DeviceError, match="ValueError: assignment destination is read-only"):
        device.call("write_into", budget=BUDGET, array=np.ones(3))


def test_what_is_not_plain_is_refused_before_it_is_sent(device: DeviceProcess) -> None:
    with pytest.raises(TypeError, match=r"only plain data and arrays of numbers travel, not PosixPath"):
        device.call("echo", budget=BUDGET, value=Path("/"))

    assert device.call("echo", budget=BUDGET, value=1) == 1


def test_an_answer_that_is_not_plain_is_an_error_of_the_service(device: DeviceProcess) -> None:
    with pytest.raises(DeviceError, match=r"'no_data' answered: only plain data"):
        device.call("no_data", budget=BUDGET)

    assert device.alive


def test_an_unknown_verb_lists_what_there_is(device: DeviceProcess) -> None:
    with pytest.raises(
        DeviceError, match=r"no verb 'fly'; this service has: babble, .*, write_into, wrong_card$"
    ):
        device.call("fly", budget=BUDGET)


def test_a_private_method_is_no_verb(device: DeviceProcess) -> None:
    with pytest.raises(DeviceError, match="no verb '__init__'"):
        device.call("__init__", budget=BUDGET)


def test_a_refusal_brings_its_code_and_what_was_written_meanwhile(device: DeviceProcess) -> None:
    with pytest.raises(ShimError, match=r"^returned 4\n\[pjrt_ffi\] the reason$") as caught:
        device.call("refuse", budget=BUDGET, code=4)

    assert (type(caught.value), caught.value.code) == (ShimError, 4)


def test_a_shims_own_line_comes_before_the_plugins_pages(device: DeviceProcess) -> None:
    with pytest.raises(
        ShimError, match=r"^returned 3\n\[pjrt_ffi\] the reason\na plugin's page\na plugin's other page$"
    ):
        device.call("refuse_at_length", budget=BUDGET)


def test_what_was_written_before_the_call_is_no_part_of_its_error(device: DeviceProcess) -> None:
    for _ in range(2):
        with pytest.raises(ShimError) as caught:
            device.call("refuse", budget=BUDGET, code=1)

        assert str(caught.value).count("the reason") == 1


def test_errors_keep_their_class(device: DeviceProcess) -> None:
    with pytest.raises(UnsupportedError, match="returned 99") as unsupported:
        device.call("refuse", budget=BUDGET, code=99)
    with pytest.raises(PinError, match="not that card"):
        device.call("wrong_card", budget=BUDGET)

    assert unsupported.value.code == 99


def test_memory_that_the_kernel_refuses_is_told_as_that(device: DeviceProcess) -> None:
    words = r"'want_too_much' was refused memory on the host: MemoryError\nTraceback"
    with pytest.raises(HostMemoryError, match=words):
        device.call("want_too_much", budget=BUDGET)

    assert device.alive


def test_a_bug_in_the_service_shows_its_traceback_and_the_process_lives(device: DeviceProcess) -> None:
    with pytest.raises(DeviceError, match=r"'bug' raised ZeroDivisionError: a bug\nTraceback") as caught:
        device.call("bug", budget=BUDGET)

    assert type(caught.value) is DeviceError
    assert device.alive


def test_text_in_a_buffer_of_c_is_not_late(device: DeviceProcess) -> None:
    with pytest.raises(ShimError, match=r"look above\nfrom C"):
        device.call("print_buffered", budget=BUDGET, text="from C")


def test_it_imports_nothing_of_pytest_nor_of_the_floors_above(start: Start) -> None:
    loaded = start(env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}).call("modules", budget=BUDGET)
    ours = {name.split(".")[1] for name in loaded if name.startswith("pytest_cudaboot.")}

    assert not {name.partition(".")[0] for name in loaded} & {
        "pytest",
        "_pytest",
        "xdist",
        "execnet",
        "pluggy",
    }
    assert ours <= {"errors", "model", "rules", "probes", "lowerers", "project", "device"}


def test_a_lock_of_the_card_is_inherited_also_by_its_children(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        assert start(pass_fds=[lock.fileno()]).call("inherited", budget=BUDGET, fd=lock.fileno()) is True


def test_the_channel_is_not_inherited_by_its_children(device: DeviceProcess) -> None:
    assert device.call("channel_is_inherited", budget=BUDGET) is False


def test_no_stacks_are_shown_once_a_call_was_answered(device: DeviceProcess) -> None:
    device.call("echo", budget=0.2, value=1)

    # It would end here if it were to end at all, so this is how long nothing is done.
    assert not device._group.wait(0.4)
    assert device.log_path.read_text() == ""


def test_a_pin_that_holds_is_silent(start: Start) -> None:
    prove_pin(start(env={"CUDA_VISIBLE_DEVICES": "GPU-a"}), ["GPU-a"])


def test_a_pin_that_does_not_hold_names_both_lists(start: Start) -> None:
    pinned = start(env={"CUDA_VISIBLE_DEVICES": "GPU-b"})

    with pytest.raises(
        PinError, match=r"sees \['GPU-b'\], but was pinned to \['GPU-a'\] \(CUDA_VIS.*='GPU-b'\)"
    ):
        prove_pin(pinned, ["GPU-a"])
