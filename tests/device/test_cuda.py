"""The driver calls behind a pin, against a library that stands for libcuda."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_cudaboot
from pytest_cudaboot.device.client import DeviceProcess, prove_pin
from pytest_cudaboot.errors import BoxError, PinError, ToolMissingError

FIRST = "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0"
SECOND = "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1"
BUDGET = 30.0

Open = Callable[..., DeviceProcess]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the fake driver and returns its folder."""

    def build(*words: str) -> Path:
        folder = tmp_path_factory.mktemp("driver")
        source, made = Path(__file__).with_name("fake_cuda.c"), folder / "libcuda.so.1"
        line = f"gcc -Wall -Werror -shared -fPIC {source} -o {made}".split()
        subprocess.run(["/usr/bin/env", *line, *words], check=True)
        return folder

    return build


@pytest.fixture(scope="module")
def folder(driver: Callable[..., Path]) -> Path:
    return driver()


@pytest.fixture
def device(tmp_path: Path, request: pytest.FixtureRequest) -> Open:
    """Starts a device process with a driver on its loader path."""

    def open_one(library_path: Path, **env: str) -> DeviceProcess:
        env = {"PATH": os.defpath, "LD_LIBRARY_PATH": str(library_path), **env}
        made = DeviceProcess(env=env, log_path=tmp_path / "log")
        request.addfinalizer(made.close)
        return made

    return open_one


def test_cards_are_named_by_uuid_in_the_drivers_order(device: Open, folder: Path) -> None:
    assert device(folder, FAKE_CUDA_DEVICES="2").call("prove", budget=BUDGET) == [FIRST, SECOND]


def test_the_driver_tells_version_memory_and_whether_a_context_is_there(device: Open, folder: Path) -> None:
    facts = device(folder, FAKE_CUDA_DEVICES="2").call("driver", budget=BUDGET)

    assert facts["version"] == 12090
    assert [(d["ordinal"], d["name"], d["memory"], d["context_active"]) for d in facts["devices"]] == [
        (0, "Fake Card", 16724000000, False),
        (1, "Fake Card", 16724000000, True),
    ]


def test_a_pin_that_holds_is_silent_and_one_that_does_not_names_both(device: Open, folder: Path) -> None:
    pinned = device(folder, CUDA_VISIBLE_DEVICES=SECOND)

    prove_pin(pinned, [FIRST])
    with pytest.raises(PinError, match=rf"sees \['{FIRST}'\], but was pinned to \['{SECOND}'\]"):
        prove_pin(pinned, [SECOND])


def test_a_mask_that_hides_every_card_is_an_empty_answer(device: Open, folder: Path) -> None:
    hidden = device(folder, FAKE_CUDA_INIT="100")

    assert hidden.call("prove", budget=BUDGET) == []
    with pytest.raises(PinError, match=r"sees \[\], but was pinned to"):
        prove_pin(hidden, [FIRST])


def test_an_error_of_cuda_is_named(device: Open, folder: Path) -> None:
    with pytest.raises(BoxError, match=r"cuInit failed with 999 \(CUDA_ERROR_UNKNOWN\)"):
        device(folder, FAKE_CUDA_INIT="999").call("prove", budget=BUDGET)
    with pytest.raises(BoxError, match=r"cuInit failed with 803 \(unknown to this driver\)"):
        device(folder, FAKE_CUDA_INIT="803").call("prove", budget=BUDGET)


@pytest.mark.parametrize("function", ["cuDeviceGet", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxGetState"])
def test_an_error_of_one_card_names_call_and_card(device: Open, folder: Path, function: str) -> None:
    with pytest.raises(BoxError, match=rf"{function} for device 0 failed with 999"):
        device(folder, FAKE_CUDA_FAIL=function).call("prove", budget=BUDGET)


def test_a_driver_with_the_old_uuid_only_is_refused(device: Open, driver: Callable[..., Path]) -> None:
    with pytest.raises(
        BoxError, match=r"libcuda.so.1 lacks cuDeviceGetUuid_v2; it is no CUDA driver of version 11.4"
    ):
        device(driver("-DOLD_DRIVER")).call("prove", budget=BUDGET)


def test_a_file_that_is_no_library_is_named_in_the_loaders_words(device: Open, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")

    with pytest.raises(
        ToolMissingError, match=r"no CUDA driver: .*libcuda.so.1: .*; it comes with NVIDIA's kernel"
    ):
        device(tmp_path).call("prove", budget=BUDGET)


def test_nothing_is_loaded_before_it_is_asked_for(device: Open, folder: Path) -> None:
    process = device(folder)
    before = process.call("mapped", budget=BUDGET)
    process.call("prove", budget=BUDGET)
    after = process.call("mapped", budget=BUDGET)

    assert "libcuda.so.1" not in before
    assert after["libcuda.so.1"] == [str(folder / "libcuda.so.1")]


def test_importing_the_module_touches_no_driver() -> None:
    source = "import sys, pytest_cudaboot.device.cuda; print('libcuda' in open('/proc/self/maps').read())"
    root = str(Path(pytest_cudaboot.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", source], env={"PYTHONPATH": root}, check=True, capture_output=True, text=True
    )

    assert done.stdout == "False\n"
