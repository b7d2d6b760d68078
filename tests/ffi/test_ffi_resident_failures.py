"""What residency refuses, and what is left of it when a step fails. The plugin is the tiny one: all of it is the shim's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ffi.drift import START, batch, drift, flush, read, resident, step
from tests.ffi.helpers import Child, Json, create

CLIENT_ONLY = 1

GUARDS: dict[str, tuple[Json, str]] = {
    "negative-input": (
        resident(0, range=[-1, 0, 2]),
        "@drift has 4 inputs; 2 from input -1 on can not be resident",
    ),
    "too-far": (resident(0, range=[3, 0, 2]), "@drift has 4 inputs; 2 from input 3 on can not be resident"),
    "negative-count": (resident(0, range=[1, 0, -1]), "-1 from input 1 on can not be resident"),
    "huge-count": (resident(0, range=[1, 0, 2**31 - 1]), "2147483647 from input 1 on can not be resident"),
    "output": (resident(0, range=[1, 2, 2]), "@drift has 3 outputs; 2 from output 2 on can not replace"),
    "slot": (
        resident(0, range=[0, 1, 2]),
        "output 2 of @drift, tensor<f32>, can not replace input 1, tensor<4xf32>",
    ),
    "loss-skipped": (resident(0, skip=[2]), "output 2 of @drift is NULL"),
    "too-few-inputs": (drift([batch(0), *START], range=[1, 0, 2], replicas=1), "@drift takes 4 inputs"),
    "session": (resident(0, session=None), "the session is NULL"),
}


@pytest.fixture(scope="module")
def refusals(child: Child, drifts: Path, tiny: Path) -> dict[str, Json]:
    ops = [op for op, _ in GUARDS.values()]
    more = [
        resident(0),
        resident(1, range=[1, 0, 1]),
        resident(1, range=[1, -1, 2], skip=[]),
        resident(1),
        read(8),
    ]
    answers = child(create(drifts / "drift.mlir"), *ops, *more, PJRT_PLUGIN=str(tiny))
    return dict(zip(["made", *GUARDS, "first", "count", "mode", "second", "read"], answers, strict=True))


@pytest.mark.parametrize("guard", GUARDS)
def test_guard_fires_with_its_words(refusals: dict[str, Json], guard: str) -> None:
    assert refusals[guard]["code"] == 1
    assert GUARDS[guard][1] in refusals[guard]["said"]
    assert refusals[guard]["said"].count("\n") == 1


def test_a_changed_count_is_refused_and_leaves_the_rest(refusals: dict[str, Json]) -> None:
    assert refusals["count"]["code"] == 1
    assert (
        "@drift: this session keeps 2 resident input(s), the caller asks for 1" in refusals["count"]["said"]
    )
    assert refusals["mode"]["code"] == 1
    assert "keeps it with role 0, the caller changes that to -2" in refusals["mode"]["said"]
    assert [refusals[name]["code"] for name in ("first", "second", "read")] == [0, 0, 0]


def fails(child: Child, drifts: Path, tiny: Path, wish: str, *ops: Json) -> list[Json]:
    """The operations' answers with that call of the plugin failing; afterwards nothing but the client is held."""
    name = "TINY_FAIL" if wish.startswith("PJRT_") else "TINY_FAIL_EVENT"
    end: list[Json] = [{"op": "release", "session": 0}, {"op": "counts", "plugin": str(tiny)}]
    _, *answers, _, counts = child(
        create(drifts / "drift.mlir"), *ops, *end, env={"PJRT_PLUGIN": str(tiny), name: wish}
    )
    assert counts["held"] == CLIENT_ONLY
    return answers


def codes(answers: list[Json]) -> list[int]:
    return [answer["code"] for answer in answers]


EXECUTE = "PJRT_LoadedExecutable_Execute:2"


def test_what_a_failed_step_updated_is_lost_for_good(child: Child, drifts: Path, tiny: Path) -> None:
    """To begin again with the host's old arrays, without a word, would undo all the steps before."""
    answers = fails(child, drifts, tiny, EXECUTE, resident(0), resident(1), resident(2), resident(0), read())

    assert codes(answers) == [0, 3, 1, 1, 2]
    assert "a failed step took the resident inputs along; release the session" in answers[3]["said"]
    assert "a failed step took what was retained along" in answers[4]["said"]


def test_a_loop_goes_on_with_what_the_host_sends_anew(child: Child, drifts: Path, tiny: Path) -> None:
    answers = fails(child, drifts, tiny, EXECUTE, step(0), step(1), step(2), step(0), step(1), read())

    assert codes(answers) == [0, 3, 1, 0, 0, 0]
    assert "nothing is kept on the device for it any more: a failed step took it along" in answers[2]["said"]


def test_a_batch_that_does_not_arrive_takes_nothing_along(child: Child, drifts: Path, tiny: Path) -> None:
    sent = len(START) + 2  # by the first step
    wish = f"PJRT_Client_BufferFromHostBuffer:{sent + 1}"

    answers = fails(child, drifts, tiny, wish, resident(0), resident(1), resident(2), read())

    assert codes(answers) == [0, 2, 0, 0]


def test_half_a_set_is_not_kept(child: Child, drifts: Path, tiny: Path) -> None:
    """The second of the kept inputs does not arrive: the first one goes too, and the next call begins anew."""
    wish = "PJRT_Client_BufferFromHostBuffer:3"

    answers = fails(child, drifts, tiny, wish, step(0), step(1), step(0), step(1))

    assert codes(answers) == [2, 1, 0, 0]
    assert "nothing is kept on the device for it\n" in answers[1]["said"]


def test_a_program_that_does_not_compile_leaves_no_roles(child: Child, drifts: Path, tiny: Path) -> None:
    """The second compilation is that of the program with donated inputs."""
    answers = fails(child, drifts, tiny, "PJRT_Client_Compile:2", resident(0), resident(0), resident(1))

    assert codes(answers) == [1, 0, 0]
    assert "PJRT_Client_Compile was asked to fail" in answers[0]["said"]


def test_a_loss_that_does_not_come_back_undoes_no_step(child: Child, drifts: Path, tiny: Path) -> None:
    """The first step asks each output's size and copies all three; the seventh call is the second step's loss."""
    answers = fails(child, drifts, tiny, "PJRT_Buffer_ToHostBuffer:7", resident(0), resident(1), read())

    assert codes(answers) == [0, 4, 0]
    assert answers[2]["floats"][:4] == batch(1)["data"]  # the tiny plugin's step: w becomes x


@pytest.mark.parametrize("event", ["execute", "transfer"])
def test_an_event_that_fails_takes_the_step_along(child: Child, drifts: Path, tiny: Path, event: str) -> None:
    answers = fails(child, drifts, tiny, event, resident(0), resident(1))

    assert codes(answers) == [{"execute": 3, "transfer": 2}[event], 1]


def test_a_step_in_flight_that_fails_is_told_by_a_later_call(child: Child, drifts: Path, tiny: Path) -> None:
    ops = [step(number, in_flight=2, late=1) for number in range(4)]

    answers = fails(child, drifts, tiny, "execute", *ops)

    assert codes(answers) == [0, 0, 3, 1]
    assert "step: a step in flight: the execute was asked to fail" in answers[2]["said"]


def test_a_flush_tells_of_it_too(child: Child, drifts: Path, tiny: Path) -> None:
    answers = fails(child, drifts, tiny, "execute", step(0, in_flight=2), flush(), read(), flush())

    assert codes(answers) == [0, 3, 2, 0]


def test_a_session_may_be_released_with_steps_in_flight(child: Child, drifts: Path, tiny: Path) -> None:
    answers = fails(child, drifts, tiny, "none", *[step(n, in_flight=9, late=1) for n in range(4)])

    assert codes(answers) == [0] * 4
