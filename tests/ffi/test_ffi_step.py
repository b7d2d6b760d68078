"""The step of a training loop: roles of inputs, steps in flight, and a loss that is read a step later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ffi.drift import (
    HOLD,
    NOTHING,
    RATE,
    SEND,
    START,
    STEPS,
    batch,
    copying,
    flush,
    losses,
    read,
    state_of,
    step,
)
from tests.ffi.helpers import Child, Json, create


@pytest.fixture(scope="module")
def copied(child: Child, drifts: Path, real_plugin: Path) -> list[Json]:
    """The same steps by the copying calls of a session that never kept anything."""
    _, *answers = child(create(drifts / "drift.mlir"), *copying(range(STEPS)), PJRT_PLUGIN=str(real_plugin))
    return answers


HOWS = [(in_flight, late) for in_flight in (0, 1, 3) for late in (0, 1)]


@pytest.fixture(scope="module")
def loops(child: Child, drifts: Path, real_plugin: Path) -> dict[tuple[int, int], list[Json]]:
    """In one child, for each way a session of its own: its steps, a flush, and what was kept."""
    ops: list[Json] = []
    for session, (in_flight, late) in enumerate(HOWS):
        steps = [step(number, in_flight=in_flight, late=late) for number in range(STEPS)]
        own = [*steps, flush(4, 4, 1), read()]
        ops += [create(drifts / "drift.mlir"), *(op | {"session": session} for op in own)]
    answers = child(*ops, PJRT_PLUGIN=str(real_plugin))
    length = STEPS + 3
    return {how: answers[length * i + 1 : length * (i + 1)] for i, how in enumerate(HOWS)}


@pytest.mark.parametrize("how", HOWS)
def test_steps_in_flight_compute_the_same(
    loops: dict[tuple[int, int], list[Json]], copied: list[Json], how: tuple[int, int]
) -> None:
    """A late loss comes with the next step, the last one with the flush."""
    answers = loops[how]

    assert [answer["code"] for answer in answers] == [0] * (STEPS + 2), answers
    seen = losses(answers[: STEPS + 1])
    assert (seen[1:] if how[1] else seen[:-1]) == losses(copied)
    missing = seen[0] if how[1] else seen[-1]
    assert missing != missing  # noqa: PLR0124 NaN: there was no step before, or nothing late to flush
    assert answers[-1]["floats"] == state_of(copied[-1])


def test_what_is_kept_can_be_set_anew(
    child: Child, drifts: Path, real_plugin: Path, copied: list[Json]
) -> None:
    """With an array in its place the host's value goes to the device, in the middle of the loop too."""
    again = step(0) | {"inputs": [batch(0), *START, RATE]}

    _, *answers = child(
        create(drifts / "drift.mlir"), step(0), step(1), again, step(1), PJRT_PLUGIN=str(real_plugin)
    )

    assert losses(answers) == losses(copied[:2]) * 2


def test_a_late_loss_that_nobody_asked_for_is_forgotten(
    child: Child, drifts: Path, real_plugin: Path, copied: list[Json]
) -> None:
    """A step that reads its own loss lies between two that are late: the second of them does not get the first's."""
    steps = [step(0, late=1), step(1), step(2, late=1), step(3, late=1)]

    _, *answers = child(create(drifts / "drift.mlir"), *steps, PJRT_PLUGIN=str(real_plugin))

    first, own, none, last = losses(answers)
    assert first != first  # noqa: PLR0124 NaN
    assert none != none  # noqa: PLR0124 NaN
    assert (own, last) == (losses(copied)[1], losses(copied)[2])


def test_two_replicas_step_in_flight(child: Child, drifts: Path, real_plugin: Path) -> None:
    how: Json = {"fn": "shared", "replicas": 2, "mask": [1, 0, 0, 0]}
    steps = [step(number, in_flight=2) | how for number in range(STEPS)]
    plain = [op | how for op in copying(range(STEPS))]
    for op, number in zip(steps + plain, [*range(STEPS)] * 2, strict=True):
        op["inputs"] = [batch(number, 8), *op["inputs"][1:]]

    _, *answers = child(
        create(drifts / "shared.mlir"),
        *(*steps, flush(), read(), *plain),
        PJRT_PLUGIN=str(real_plugin),
        PJRT_REPLICAS="2",
        CUDABOOT_CPU_DEVICES="2",
    )

    assert losses(answers[:STEPS]) == losses(answers[STEPS + 2 :])
    assert answers[STEPS + 1]["floats"] == state_of(answers[-1])


@pytest.mark.parametrize("how", [(0, 0), (2, 1)])
def test_steps_do_not_grow(child: Child, drifts: Path, real_plugin: Path, how: tuple[int, int]) -> None:
    """The first half warms up; in the second, 250 bytes a step would be 61 pages."""
    in_flight, late = how
    first, later = (step(number, in_flight=in_flight, late=late) | {"session": 0} for number in (0, 1))

    _, answer = child(
        create(drifts / "drift.mlir"),
        {"op": "loop", "times": 2000, "first": first, "step": later},
        PJRT_PLUGIN=str(real_plugin),
    )

    assert answer["code"] == 0, answer["said"]
    assert answer["pages"][-1] - answer["pages"][4] < 61, answer["pages"]


GUARDS: dict[str, tuple[Json, str]] = {
    "no-roles": (step(0, roles=None), "the list of roles is NULL"),
    "role": (
        step(0, roles=[SEND, 0, 3, HOLD]),
        "input 2 of @drift: its role 3 is neither send (-1), hold (-2) nor one of the 3 outputs",
    ),
    "negative-role": (step(0, roles=[SEND, -3, 1, HOLD]), "input 1 of @drift: its role -3 is neither"),
    "slot": (
        step(0, roles=[SEND, 0, 2, HOLD]),
        "output 2 of @drift, tensor<f32>, can not replace input 2, tensor<4xf32>",
    ),
    "twice": (
        step(0, roles=[SEND, 0, 0, HOLD]),
        "output 0 of @drift can not replace both input 1 and input 2",
    ),
    "absent": (step(1), "input 1 of @drift is NULL, and nothing is kept on the device for it\n"),
    "absent-batch": (step(0) | {"inputs": [NOTHING, *START, RATE]}, "input 0 of @drift is NULL\n"),
    "in-flight": (step(0, in_flight=1025), "@drift: 1025 steps in flight; 0 to 1024 are possible"),
    "negative": (step(0, in_flight=-1), "@drift: -1 steps in flight"),
    "entry": (step(0, fn="other"), "the session holds @drift, the caller asks for other"),
    "session": (step(0, session=None), "the session is NULL"),
    "flush-session": (flush() | {"session": None}, "flush: the session is NULL"),
    "flush-outputs": (flush(1), "@drift returns 3 outputs, the caller supplied 1 destinations"),
}


@pytest.fixture(scope="module")
def refusals(child: Child, drifts: Path, tiny: Path) -> dict[str, Json]:
    """All in one child, before a step that succeeds, since a refusal leaves nothing; then what a loop may not change."""
    changed = step(1) | {"roles": [SEND, 0, 1, SEND], "inputs": [batch(1), NOTHING, NOTHING, RATE]}
    ops = [op for op, _ in GUARDS.values()]
    answers = child(create(drifts / "drift.mlir"), *ops, step(0), changed, step(1), PJRT_PLUGIN=str(tiny))
    return dict(zip(["made", *GUARDS, "first", "changed", "second"], answers, strict=True))


@pytest.mark.parametrize("guard", GUARDS)
def test_guard_fires_with_its_words(refusals: dict[str, Json], guard: str) -> None:
    assert refusals[guard]["code"] == 1
    assert GUARDS[guard][1] in refusals[guard]["said"]
    assert refusals[guard]["said"].count("\n") == 1


def test_roles_hold_until_the_session_is_released(refusals: dict[str, Json]) -> None:
    words = "input 3 of @drift: this session keeps it with role -2, the caller changes that to -1 (release"

    assert (refusals["first"]["code"], refusals["second"]["code"]) == (0, 0)
    assert refusals["changed"]["code"] == 1
    assert words in refusals["changed"]["said"]
