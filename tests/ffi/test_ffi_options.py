"""What the environment asks of the shim: passed on, announced, or refused by name and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ffi.helpers import Child, Json, create

DESCRIBE: Json = {"op": "describe"}

OPTIONS = [
    ({}, "0 create option(s): plugin defaults", {}),
    ({"LEAN_MLIR_MEM_FRACTION": "0.5"}, "1 create option(s): memory_fraction=0.5", {"memory_fraction": 0.5}),
    ({"LEAN_MLIR_MEM_FRACTION": "1"}, "1 create option(s): memory_fraction=1", {"memory_fraction": 1}),
    ({"LEAN_MLIR_MEM_FRACTION": "25e-2"}, "memory_fraction=25e-2", {"memory_fraction": 0.25}),
    ({"LEAN_MLIR_PREALLOCATE": "0"}, "1 create option(s): preallocate=false", {"preallocate": False}),
    ({"LEAN_MLIR_PREALLOCATE": "1"}, "1 create option(s): preallocate=true", {"preallocate": True}),
    ({"CUDABOOT_CPU_DEVICES": "3"}, "1 create option(s): cpu_device_count=3", {"cpu_device_count": 3}),
    (
        {"LEAN_MLIR_MEM_FRACTION": "0.5", "LEAN_MLIR_PREALLOCATE": "0", "CUDABOOT_CPU_DEVICES": "2"},
        "3 create option(s): memory_fraction=0.5 preallocate=false cpu_device_count=2",
        {"memory_fraction": 0.5, "preallocate": False, "cpu_device_count": 2},
    ),
]


@pytest.mark.parametrize(("settings", "line", "options"), OPTIONS)
def test_what_is_passed_is_announced(
    child: Child, tiny: Path, settings: dict[str, str], line: str, options: Json
) -> None:
    (answer,) = child(DESCRIBE, env={"PJRT_PLUGIN": str(tiny), **settings})

    allocator, residency = answer["said"].splitlines()
    assert allocator.startswith("[pjrt_ffi] allocator: ")
    assert allocator.endswith(line)
    assert residency.startswith("[pjrt_ffi] residency: off")
    assert answer["facts"]["create_options"] == options


BAD_FRACTIONS = (
    "0",
    "1.5",
    "half",
    "0.5x",
    "nan",
    "inf",
    "",
    "-0.5",
    " 0.5",
    "0x1p-1",
    "1e-60",
    "1.0000001",
    ".",
)


@pytest.mark.parametrize("value", BAD_FRACTIONS)
def test_fraction_out_of_range(child: Child, tiny: Path, value: str) -> None:
    (answer,) = child(DESCRIBE, PJRT_PLUGIN=str(tiny), LEAN_MLIR_MEM_FRACTION=value)

    assert answer["code"] == 1
    assert f"LEAN_MLIR_MEM_FRACTION='{value}' is not a fraction f with 0 < f <= 1" in answer["said"]


@pytest.mark.parametrize("value", ["2", "no", "", "true", "01"])
def test_preallocate_is_0_or_1(child: Child, tiny: Path, value: str) -> None:
    (answer,) = child(DESCRIBE, PJRT_PLUGIN=str(tiny), LEAN_MLIR_PREALLOCATE=value)

    assert answer["code"] == 1
    assert f"LEAN_MLIR_PREALLOCATE='{value}' is neither 0 nor 1" in answer["said"]


@pytest.mark.parametrize("value", ["0", "128", "two", "", "-1", "1.0", "99999999999999999999"])
def test_replicas_out_of_range(child: Child, tiny: Path, modules: Path, value: str) -> None:
    (answer,) = child(create(modules / "pair.mlir"), PJRT_PLUGIN=str(tiny), PJRT_REPLICAS=value)

    assert not answer["made"]
    assert f"PJRT_REPLICAS='{value}' is not a whole number from 1 to 127" in answer["said"]


def test_more_replicas_than_devices(child: Child, tiny: Path, modules: Path) -> None:
    (answer,) = child(create(modules / "pair.mlir"), PJRT_PLUGIN=str(tiny), PJRT_REPLICAS="3")

    assert not answer["made"]
    assert "PJRT_REPLICAS=3 but only 2 device(s) are addressable" in answer["said"]
    assert "CUDABOOT_CPU_DEVICES=3" in answer["said"]


def test_cpu_devices_out_of_range(child: Child, tiny: Path) -> None:
    (answer,) = child(DESCRIBE, PJRT_PLUGIN=str(tiny), CUDABOOT_CPU_DEVICES="many")

    assert "CUDABOOT_CPU_DEVICES='many' is not a whole number from 1 to 1024" in answer["said"]
