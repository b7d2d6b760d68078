"""Where the device is the host: arrays are read where they lie, in both directions, and only while that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ffi.drift import RATE, START, batch, drift, losses, step
from tests.ffi.helpers import Child, Json, Saboteurs, create, invoke, tensor

PAIR: Json = invoke("pair", [tensor(2, 3), tensor()], [6, 1])
WORDS = [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0]]
CLIENT_ONLY = 1
UNTOUCHED = "nan"


@pytest.fixture(scope="session")
def host_memory(saboteur: Saboteurs) -> Path:
    """The tiny plugin as a CPU. It complains of a wait that would have no end, and of a look that comes too early."""
    return saboteur("host_memory")


def pair(child: Child, modules: Path, plugin: Path, **settings: str) -> tuple[Json, Json]:
    """The answer of a call, and what is left after the session."""
    counts: Json = {"op": "counts", "plugin": str(plugin)}
    ops = [create(modules / "pair.mlir"), PAIR, {"op": "release", "session": 0}, counts]
    _, answer, _, counted = child(*ops, env={"PJRT_PLUGIN": str(plugin)} | settings)
    return answer, counted


def test_arrays_are_read_where_they_lie(child: Child, modules: Path, host_memory: Path) -> None:
    answer, counts = pair(child, modules, host_memory)

    assert (answer["code"], answer["outputs"]) == (0, WORDS), answer
    assert (counts["in_place"], counts["held"]) == (4, CLIENT_ONLY)


def test_another_layout_is_copied_by_the_plugin(child: Child, modules: Path, host_memory: Path) -> None:
    """The scalar has one layout only; the two inputs are lent all the same."""
    answer, counts = pair(child, modules, host_memory, TINY_COLUMNS="1")

    assert (answer["code"], answer["outputs"]) == (0, WORDS), answer
    assert (counts["in_place"], counts["held"]) == (3, CLIENT_ONLY)


def test_a_layout_that_is_not_told_is_not_assumed(child: Child, modules: Path, host_memory: Path) -> None:
    answer, counts = pair(child, modules, host_memory, TINY_FAIL="PJRT_Buffer_GetMemoryLayout")

    assert (answer["code"], answer["outputs"]) == (0, WORDS), answer
    assert (counts["in_place"], counts["held"]) == (3, CLIENT_ONLY)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"TINY_FAIL_EVENT": "transfer"}, 2),
        ({"TINY_FAIL_EVENT": "execute"}, 3),
        ({"TINY_FAIL": "PJRT_LoadedExecutable_Execute"}, 3),
        ({"TINY_FAIL": "PJRT_Client_BufferFromHostBuffer:2"}, 2),
        ({"TINY_FAIL": "PJRT_Buffer_OpaqueDeviceMemoryDataPointer:1"}, 4),
    ],
    ids=str,
)
def test_what_fails_is_told_and_leaves_nothing_behind(
    child: Child, modules: Path, host_memory: Path, wish: dict[str, str], code: int
) -> None:
    answer, counts = pair(child, modules, host_memory, **wish)

    assert (answer["code"], counts["held"]) == (code, CLIENT_ONLY), answer


def test_a_program_that_fails_leaves_the_callers_array_alone(
    child: Child, modules: Path, host_memory: Path
) -> None:
    answer, _ = pair(child, modules, host_memory, TINY_FAIL_EVENT="execute")

    assert {str(value) for output in answer["outputs"] for value in output} == {UNTOUCHED}


@pytest.mark.parametrize("late", [0, 1])
def test_steps_leave_nothing_behind(child: Child, drifts: Path, host_memory: Path, late: int) -> None:
    """A step that reads or writes arrays of the host is not left in flight where it would have to copy them."""
    counts: Json = {"op": "counts", "plugin": str(host_memory)}
    steps = [step(number, in_flight=2, late=late) for number in range(3)]
    ops = [create(drifts / "drift.mlir"), *steps, {"op": "release", "session": 0}, counts]

    *answers, _, counted = child(*ops, PJRT_PLUGIN=str(host_memory))

    assert [answer.get("code", 0) for answer in answers] == [0] * 4, answers
    assert counted["held"] == CLIENT_ONLY
    assert counted["in_place"] == 3 * 2  # of each step, the batch and the loss


def test_what_is_held_is_no_ones_array(child: Child, drifts: Path, real_plugin: Path) -> None:
    """The caller may do with its array what it likes: a held or updated input was taken over."""
    first, second = step(0), step(1)
    spoilt = first | {"scribble": True}

    _, *clean = child(create(drifts / "drift.mlir"), first, second, PJRT_PLUGIN=str(real_plugin))
    _, *after = child(create(drifts / "drift.mlir"), spoilt, second, PJRT_PLUGIN=str(real_plugin))

    assert losses(clean) == losses(after)
    assert losses(clean)[1] != losses(clean)[0]


def given_away(drifts: Path, **rest: Any) -> list[Json]:
    """One copying step of a program whose text says that x's memory becomes an output."""
    return [create(drifts / "giving.mlir"), drift([batch(1), *START, RATE], **rest)]


def test_what_a_program_gives_away_is_not_the_callers(child: Child, drifts: Path, real_plugin: Path) -> None:
    _, answer = child(*given_away(drifts, keep=True), PJRT_PLUGIN=str(real_plugin))

    assert answer["code"] == 0, answer["said"]
    assert answer["inputs"][0] == batch(1)["data"]
    assert answer["outputs"][0] != batch(1)["data"]


def test_what_a_program_gives_away_is_not_lent(child: Child, drifts: Path, host_memory: Path) -> None:
    counts: Json = {"op": "counts", "plugin": str(host_memory)}

    _, answer, counted = child(*given_away(drifts), counts, PJRT_PLUGIN=str(host_memory))

    assert answer["code"] == 0, answer["said"]
    assert counted["in_place"] == 6  # three of the four inputs, and the three outputs
