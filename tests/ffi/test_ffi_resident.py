"""Tensors that stay on the device: bit for bit what the copying calls compute, without their bytes over the bus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ffi.drift import (
    RATE,
    START,
    STEPS,
    batch,
    copying,
    drift,
    losses,
    read,
    resident,
    state_of,
)
from tests.ffi.helpers import Child, Json, create, tensor


@pytest.fixture(scope="module")
def trained(child: Child, drifts: Path, real_plugin: Path) -> dict[str, Any]:
    """One child: steps that stay on the device, the same steps by the copying calls of the same program, and facts."""
    steps = [resident(step) for step in range(STEPS)]
    told: Json = {"op": "describe"}
    made, none, *answers = child(
        create(drifts / "drift.mlir"),
        read(),
        *(told, steps[0], told, *steps[1:], told, read(), read(7), read() | {"nowhere": True}),
        *(*copying(range(STEPS)), *copying(range(STEPS - 1)), {"op": "memory", "session": 0}),
        PJRT_PLUGIN=str(real_plugin),
    )
    assert made["made"], made["said"]
    before, first, once, *rest = answers
    after, state, short, nowhere = rest[STEPS - 1 : STEPS + 3]
    copied = rest[STEPS + 3 :]
    return {
        "none": none,
        "traffic": [answer["facts"]["transfers"] for answer in (before, once, after)],
        "steps": [first, *rest[: STEPS - 1]],
        "state": state,
        "misread": (short, nowhere),
        "copied": copied[:STEPS],
        "dropped": copied[STEPS : 2 * STEPS - 1],
        "memory": copied[-1],
    }


def test_update_mode_is_the_copying_path_bit_for_bit(trained: dict[str, Any]) -> None:
    assert losses(trained["steps"]) == losses(trained["copied"])
    assert trained["state"]["floats"] == state_of(trained["copied"][-1])


def test_an_update_that_is_dropped_would_be_seen(trained: dict[str, Any]) -> None:
    assert len(set(losses(trained["steps"]))) == STEPS
    assert trained["state"]["floats"] != state_of(trained["dropped"][-1])


def test_the_first_step_writes_its_updates_and_no_later_one(trained: dict[str, Any]) -> None:
    first, *later = trained["steps"]

    assert first["outputs"] == trained["copied"][0]["outputs"]
    assert all(value != value for answer in later for value in state_of(answer))  # noqa: PLR0124 NaN


def test_bytes_over_the_bus_are_the_batch_the_rate_and_the_loss(trained: dict[str, Any]) -> None:
    before, once, after = trained["traffic"]

    assert once["to_device_bytes"] - before["to_device_bytes"] == 4 * (4 + 4 + 4 + 1)
    assert after["to_device_bytes"] - once["to_device_bytes"] == (STEPS - 1) * 4 * (4 + 1)
    assert after["to_host_bytes"] - once["to_host_bytes"] == (STEPS - 1) * 4
    assert after["executions"] - before["executions"] == STEPS


def test_what_is_updated_is_donated(trained: dict[str, Any]) -> None:
    """The compiler's own word: the bytes of w and m become those of their successors."""
    assert trained["memory"]["facts"]["aliased"] == 4 * (4 + 4)


def test_what_is_resident_is_announced_once(trained: dict[str, Any]) -> None:
    first, *later = trained["steps"]
    words = "[pjrt_ffi] resident: @drift updates 32 bytes in place and holds 0 bytes on each device\n"

    assert first["said"] == words
    assert [answer["said"] for answer in later] == [""] * (STEPS - 1)


def test_reading_says_what_is_wrong(trained: dict[str, Any]) -> None:
    short, nowhere = trained["misread"]

    assert trained["none"]["code"] == 1
    assert "pjrt_ffi_resident_read: nothing is retained" in trained["none"]["said"]
    assert (short["code"], nowhere["code"]) == (2, 2)
    assert "8 floats are retained, the caller has room for 7" in short["said"]
    assert "8 floats are retained, the caller has room for 0" in nowhere["said"]


def test_held_inputs_are_read_again_when_the_generation_changes(
    child: Child, drifts: Path, real_plugin: Path
) -> None:
    """Between changes the host's arrays are not looked at, though they are another's by then."""
    plain, other = [*START, RATE], [tensor(4, first=3.0), tensor(4, first=4.0), RATE]
    ops = [
        drift([batch(1), *inputs], range=[1, -1, 3], generation=generation, replicas=1)
        for inputs, generation in ((plain, 7), (other, 7), (other, 8), (plain, 8))
    ]
    copied = [drift([batch(1), *inputs]) for inputs in (plain, other)]

    made, first, same, changed, again, held, *both = child(
        create(drifts / "drift.mlir"), *ops, read(9), *copied, PJRT_PLUGIN=str(real_plugin)
    )

    assert made["made"]
    assert first["outputs"] == same["outputs"] == both[0]["outputs"]
    assert changed["outputs"] == again["outputs"] == both[1]["outputs"]
    assert held["floats"] == [value for one in other for value in one["data"]]


def test_a_text_that_gives_an_input_away_can_still_hold_it(
    child: Child, drifts: Path, real_plugin: Path
) -> None:
    held = drift([batch(1), *START, RATE], range=[0, -1, 1])

    made, *answers = child(
        create(drifts / "giving.mlir"),
        held,
        held,
        held,
        drift([batch(1), *START, RATE]),
        PJRT_PLUGIN=str(real_plugin),
    )

    assert made["made"], made["said"]
    assert [answer["code"] for answer in answers] == [0] * 4, answers
    assert [answer["outputs"] for answer in answers[:3]] == [answers[3]["outputs"]] * 3


def test_two_replicas_keep_each_their_own(child: Child, drifts: Path, real_plugin: Path) -> None:
    """The batch is split; w and m stay on both devices, and replica 0 answers as on the copying path."""
    how: Json = {"fn": "shared", "replicas": 2, "mask": [1, 0, 0, 0]}
    kept = [resident(step) | how for step in range(STEPS)]
    copied = [op | how for op in copying(range(STEPS))]
    for op, step in zip(kept + copied, [*range(STEPS)] * 2, strict=True):
        op["inputs"] = [batch(step, 8), *op["inputs"][1:]]

    made, *answers = child(
        create(drifts / "shared.mlir"),
        *(*kept, read(), *copied),
        PJRT_PLUGIN=str(real_plugin),
        PJRT_REPLICAS="2",
        CUDABOOT_CPU_DEVICES="2",
    )

    assert made["made"], made["said"]
    assert [answer["code"] for answer in answers] == [0] * (2 * STEPS + 1), answers
    assert losses(answers[:STEPS]) == losses(answers[STEPS + 1 :])
    assert answers[STEPS]["floats"] == state_of(answers[-1])


@pytest.mark.parametrize(
    ("value", "asked", "word"),
    [("1", 1, "on (PJRT_FFI_RESIDENT=1)"), ("0", 0, "off"), ("", 0, "off"), (None, 0, "off")],
)
def test_residency_is_announced_on_or_off(
    child: Child, tiny: Path, value: str | None, asked: int, word: str
) -> None:
    settings = {} if value is None else {"PJRT_FFI_RESIDENT": value}

    available, client = child({"op": "available"}, {"op": "describe"}, PJRT_PLUGIN=str(tiny), env=settings)

    assert available == {"asked": asked, "said": ""}
    assert f"[pjrt_ffi] residency: {word}" in client["said"]
    assert client["facts"]["resident"] is bool(asked)


def test_residency_is_0_or_1(child: Child, tiny: Path) -> None:
    settings = {"PJRT_PLUGIN": str(tiny), "PJRT_FFI_RESIDENT": "yes"}

    available, client = child({"op": "available"}, {"op": "describe"}, env=settings)

    assert available["asked"] == 0
    assert client["code"] == 1
    assert all("PJRT_FFI_RESIDENT='yes' is neither 0 nor 1" in a["said"] for a in (available, client))
