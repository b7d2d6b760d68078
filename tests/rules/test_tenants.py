"""Others on a card: who is told of, and when they are too many."""

from __future__ import annotations

import pytest

from pytest_cudaboot.rules.tenants import no_room, tenants

GIB = 1 << 30
MIB = 1 << 20


def test_a_card_of_ones_own_has_nobody_on_it() -> None:
    assert tenants(4 * MIB, {}, {}) == []


def test_what_the_driver_keeps_for_itself_is_nobody() -> None:
    assert tenants(700 * MIB, {}, {}) == []


def test_everybody_is_named_as_far_as_is_known() -> None:
    told = tenants(3 * GIB, {7: 200 * MIB, 8: None, 9: GIB}, {7: "Xorg", 8: "python"})

    assert told == [
        "pid 7 (Xorg) has 200 MiB",
        "pid 8 (python) has memory, the driver does not say how much",
        "pid 9 has 1024 MiB",
    ]


@pytest.mark.parametrize(
    ("used", "environ"),
    [
        (200 * MIB, {}),
        (4 * GIB, {}),
        (8 * GIB, {"LEAN_MLIR_MEM_FRACTION": "0.5"}),
        (16 * GIB, {"LEAN_MLIR_PREALLOCATE": "0"}),
        (16 * GIB, {"LEAN_MLIR_MEM_FRACTION": "much"}),
        (16 * GIB, {"LEAN_MLIR_MEM_FRACTION": "7"}),
    ],
)
def test_there_is_room(used: int, environ: dict[str, str]) -> None:
    assert no_room(16 * GIB, used, environ) is None


@pytest.mark.parametrize(
    ("used", "environ", "fraction"),
    [
        (5 * GIB, {}, "0.75"),
        (5 * GIB, {"LEAN_MLIR_MEM_FRACTION": ""}, "0.75"),
        (2 * GIB, {"LEAN_MLIR_MEM_FRACTION": "0.97"}, "0.97"),
    ],
)
def test_there_is_no_room(used: int, environ: dict[str, str], fraction: str) -> None:
    assert str(no_room(16 * GIB, used, environ)).startswith(f"{fraction} of the card is asked for, and 0.")


def test_a_chip_without_memory_of_its_own_is_not_judged() -> None:
    assert no_room(0, 0, {}) is None
