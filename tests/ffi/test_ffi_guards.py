"""Every guard of an invocation, seen to fire with its words. The plugin is the tiny one: the guards are the shim's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ffi.helpers import Child, Json, create, invoke, tensor

GOOD: list[Json] = [tensor(2, 3), tensor()]
TOTALS = [6, 1]

REFUSED: dict[str, tuple[Json, int, str]] = {
    "entry": (invoke("fwd", GOOD, TOTALS), 1, "the session holds @pair, the caller asks for fwd"),
    "entry-after-dot": (invoke("pair.x", GOOD, TOTALS), 1, "holds @pair, the caller asks for pair.x"),
    "entry-null": (
        invoke("pair", GOOD, TOTALS, lie={"fn": None}),
        1,
        "name is NULL (the session holds @pair)",
    ),
    "too-few-inputs": (invoke("pair", GOOD[:1], TOTALS), 1, "@pair takes 2 inputs, the caller gives 1"),
    "too-many-inputs": (invoke("pair", [*GOOD, tensor()], TOTALS), 1, "takes 2 inputs, the caller gives 3"),
    "negative-inputs": (invoke("pair", GOOD, TOTALS, lie={"n_inputs": -1}), 1, "the caller gives -1"),
    "null-inputs": (
        invoke("pair", GOOD, TOTALS, lie={"no_inputs": True}),
        1,
        "list of inputs or ranks is NULL",
    ),
    "rank": (
        invoke("pair", [tensor(6), tensor()], TOTALS),
        1,
        "input 0 of @pair: the module wants tensor<2x3xf32>, the caller gives tensor<6xf32>",
    ),
    "transposed": (
        invoke("pair", [tensor(3, 2), tensor()], TOTALS),
        1,
        "input 0 of @pair: the module wants tensor<2x3xf32>, the caller gives tensor<3x2xf32>",
    ),
    "second-input": (
        invoke("pair", [tensor(2, 3), tensor(1)], TOTALS),
        1,
        "input 1 of @pair: the module wants tensor<f32>, the caller gives tensor<1xf32>",
    ),
    "negative-dim": (
        invoke("pair", [{"dims": [-2, 3], "data": []}, tensor()], TOTALS),
        1,
        "the caller gives tensor<-2x3xf32>",
    ),
    "huge-rank": (invoke("pair", GOOD, TOTALS, lie={"ranks": [2**30, 0]}), 1, "gives rank 1073741824"),
    "negative-rank": (invoke("pair", GOOD, TOTALS, lie={"ranks": [-1, 0]}), 1, "gives rank -1"),
    "null-input": (
        invoke("pair", [{"dims": [2, 3], "data": None}, tensor()], TOTALS),
        1,
        "input 0 of @pair is NULL",
    ),
    "too-few-outputs": (
        invoke("pair", GOOD, [6]),
        1,
        "@pair returns 2 outputs, the caller supplied 1 destinations",
    ),
    "too-many-outputs": (invoke("pair", GOOD, [6, 1, 1]), 1, "returns 2 outputs, the caller supplied 3"),
    "null-outputs": (
        invoke("pair", GOOD, TOTALS, lie={"no_outputs": True}),
        1,
        "list of outputs or totals is NULL",
    ),
    "output-size": (
        invoke("pair", GOOD, [12, 1]),
        4,
        "output 0 size mismatch: graph 24 bytes (tensor<2x3xf32>), caller 48",
    ),
    "output-size-negative": (
        invoke("pair", GOOD, TOTALS, lie={"totals": [6, -1]}),
        4,
        "graph 4 bytes (tensor<f32>), caller -4",
    ),
    "replicas": (
        invoke("pair", GOOD, TOTALS, replicas=2, mask=[0, 0]),
        1,
        "@pair was compiled for 1 replica(s), the caller asks for 2",
    ),
    "no-replicas": (invoke("pair", GOOD, TOTALS, replicas=0), 1, "the caller asks for 0"),
    "scalar-shard": (
        invoke("pair", GOOD, TOTALS, replicas=1, mask=[0, 1]),
        1,
        "input 1 of @pair: the outer dimension of tensor<f32> does not divide by 1 replica(s)",
    ),
    "null-session": (invoke("pair", GOOD, TOTALS) | {"session": None}, 1, "the session is NULL"),
}


@pytest.fixture(scope="module")
def refusals(child: Child, modules: Path, tiny: Path) -> dict[str, Json]:
    """All of them in one child, between two calls that succeed: a refusal leaves the session as it was."""
    good = invoke("m.pair", GOOD, TOTALS)
    ops = [create(modules / "pair.mlir"), good, *(op for op, _, _ in REFUSED.values()), good]
    answers = child(*ops, {"op": "release", "session": 0}, PJRT_PLUGIN=str(tiny))
    return dict(zip(["made", "before", *REFUSED, "after", "released"], answers, strict=True))


@pytest.mark.parametrize("guard", REFUSED)
def test_guard_fires_with_its_words(refusals: dict[str, Json], guard: str) -> None:
    _, code, words = REFUSED[guard]

    assert refusals[guard]["code"] == code
    assert words in refusals[guard]["said"]


@pytest.mark.parametrize("guard", REFUSED)
def test_message_is_one_line_that_names_the_shim(refusals: dict[str, Json], guard: str) -> None:
    said: str = refusals[guard]["said"]

    assert said.startswith("[pjrt_ffi] ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("guard", REFUSED)
def test_nothing_is_written_by_what_is_refused(refusals: dict[str, Json], guard: str) -> None:
    assert all(value != value for output in refusals[guard]["outputs"] for value in output)  # noqa: PLR0124 NaN


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_same_session_still_answers(refusals: dict[str, Json], when: str) -> None:
    assert refusals[when] == {"code": 0, "outputs": [[1, 2, 3, 4, 5, 6], [1]], "said": ""}


REPLICATED: dict[str, tuple[Json, str]] = {
    "shard": (
        invoke("summed", [tensor(5), tensor()], [2, 1], replicas=2, mask=[1, 0]),
        "input 0 of @summed: the outer dimension of tensor<5xf32> does not divide by 2 replica(s)",
    ),
    "shard-too-large": (
        invoke("summed", [tensor(8), tensor()], [2, 1], replicas=2, mask=[1, 0]),
        "the module wants tensor<2xf32>, the caller gives tensor<4xf32> a replica",
    ),
    "mask-forgotten": (
        invoke("summed", [tensor(4), tensor()], [2, 1], replicas=2),
        "input 0 of @summed: the module wants tensor<2xf32>, the caller gives tensor<4xf32>",
    ),
    "one-replica-verb": (
        invoke("summed", [tensor(2), tensor()], [2, 1]),
        "@summed was compiled for 2 replica(s), the caller asks for 1",
    ),
}


@pytest.mark.parametrize("guard", REPLICATED)
def test_guard_over_replicas(child: Child, modules: Path, tiny: Path, guard: str) -> None:
    op, words = REPLICATED[guard]

    _, answer = child(create(modules / "summed2.mlir"), op, PJRT_PLUGIN=str(tiny), PJRT_REPLICAS="2")

    assert answer["code"] == 1
    assert words in answer["said"]


@pytest.mark.parametrize(
    ("text", "op", "words"),
    [
        (
            "func.func @i(%a: tensor<4xi32>) -> tensor<4xf32> { }",
            invoke("i", [tensor(4)], [4]),
            "input 0 of @i: the module wants tensor<4xi32>, the caller gives tensor<4xf32>",
        ),
        (
            "func.func @i(%a: tensor<4xf32>) -> tensor<4xi32> { }",
            invoke("i", [tensor(4)], [4]),
            "output 0 of @i is tensor<4xi32>, the caller reads float32",
        ),
    ],
)
def test_other_element_types_are_refused(
    child: Child, tmp_path: Path, tiny: Path, text: str, op: Json, words: str
) -> None:
    (tmp_path / "i.mlir").write_text(text)

    _, answer = child(create(tmp_path / "i.mlir"), op, PJRT_PLUGIN=str(tiny))

    assert answer["code"] == 1
    assert words in answer["said"]


STEMS = ("mlp", "adam_ddpm", "adam_yolov1")


@pytest.mark.parametrize("stem", STEMS)
def test_train_verbs_say_that_they_are_not_there(child: Child, tiny: Path, stem: str) -> None:
    verb = f"iree_ffi_train_step_{stem}"

    (answer,) = child({"op": "verb", "name": verb}, PJRT_PLUGIN=str(tiny))

    assert answer["code"] == 99
    assert answer["said"] == f"[pjrt_ffi] {verb}: not implemented by the XLA shim; use iree_ffi_invoke_f32\n"


def test_releasing_null_is_safe(child: Child, tiny: Path) -> None:
    answers = child(create(None), {"op": "release", "session": 0}, PJRT_PLUGIN=str(tiny))

    assert answers[0] == {"made": False, "said": "[pjrt_ffi] iree_ffi_session_create: the path is NULL\n"}
    assert answers[1] == {"said": ""}
