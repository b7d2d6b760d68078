"""The train verbs of the XLA shim, against a float64 oracle: what they pass to a graph, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ffi.helpers import Child, Json, create
from tests.ffi.verb_graphs import BATCH, BETAS, CLASSES, EPSILON, GRAPHS, PIXELS, RATE, SIDE, TIME

Array = npt.NDArray[np.float64]


def given() -> dict[str, Any]:
    """Float32 values in float64, so that oracle and device start from the same numbers."""
    rng = np.random.default_rng(3)

    def drawn(*shape: int) -> Array:
        return np.asarray(rng.normal(0, 1, shape).astype(np.float32), np.float64)

    shapes = [(PIXELS, CLASSES), (CLASSES,)]
    state = [drawn(*shape) for shape in shapes]
    first = [0.1 * drawn(*shape) for shape in shapes]
    second = [np.asarray(np.float32(0.5) + drawn(*shape) ** 2) for shape in shapes]
    exact = [np.asarray(a.astype(np.float32), np.float64) for a in [*state, *first, *second]]
    soft = rng.random((BATCH, CLASSES))
    soft = np.asarray((soft / soft.sum(axis=1, keepdims=True)).astype(np.float32), np.float64)
    return {"state": exact, "x": drawn(BATCH, PIXELS), "labels": [0, 2, 1, 2], "soft": soft}


def oracle(data: dict[str, Any], y: Array, optimizer: str) -> tuple[list[Array], float, list[Array]]:
    """New parameters (and moments), the loss, and the logits' mean and variance."""
    w, b, *rest = data["state"]
    logits = data["x"] @ w + b
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    slope = (np.exp(logs) * y.sum(axis=1, keepdims=True) - y) / BATCH
    gradients = [data["x"].T @ slope, slope.sum(axis=0)]
    loss = float(-(y * logs).sum(axis=1).mean())
    statistics = [logits.mean(axis=0), logits.var(axis=0)]
    if optimizer == "sgd":
        return [p - RATE * g for p, g in zip((w, b), gradients, strict=True)], loss, statistics
    m = [BETAS[0] * o + (1 - BETAS[0]) * g for o, g in zip(rest[:2], gradients, strict=True)]
    v = [BETAS[1] * o + (1 - BETAS[1]) * g**2 for o, g in zip(rest[2:], gradients, strict=True)]
    scale = [1 - beta**TIME for beta in BETAS]
    moved = [
        p - RATE * (a / scale[0]) / (np.sqrt(c / scale[1]) + EPSILON)
        for p, a, c in zip((w, b), m, v, strict=True)
    ]
    return [*moved, *m, *v], loss, statistics


def given_tensor(array: Array) -> Json:
    return {"dims": list(array.shape), "data": array.ravel().tolist()}


def call(name: str, entry: str, data: dict[str, Any], **rest: Any) -> Json:
    """A train verb on the session of `entry`, with labels."""
    count = 2 if name == "generic" else 6
    time: Json = {} if name == "generic" else {"t": TIME}
    return {
        "op": "train",
        "session": list(GRAPHS).index(entry),
        "name": name,
        "fn": f"m.{entry}",
        "batch": BATCH,
        "extra": [],
        "lr": RATE,
        "bn": [],
        "y_type": "i",
        "y": data["labels"],
        "parameters": [given_tensor(a) for a in data["state"][:count]],
        "x": given_tensor(data["x"]),
        **(time | rest),
    }


def soft(data: dict[str, Any], entry: str = "adam_onehot", **rest: Any) -> Json:
    values: Json = {"y_type": "f", "y": data["soft"].ravel().tolist(), "extra": [CLASSES]}
    return call("adam_softlabel", entry, data, **(values | rest))


def seg(entry: str, **rest: Any) -> Json:
    """Weights on x that tell every place apart."""
    x = np.arange(BATCH * CLASSES * SIDE * SIDE, dtype=np.float64).reshape(BATCH, CLASSES, SIDE, SIDE)
    y = [(3 * i + 1) % CLASSES for i in range(BATCH * SIDE * SIDE)]
    data: dict[str, Any] = {"state": [np.array([1.0, 2.0])], "x": x, "labels": y}
    return call("adam_seg", entry, data, **({"extra": [SIDE, SIDE]} | rest))


DATA = given()
ONEHOT: Array = np.eye(CLASSES)[DATA["labels"]]

CASES: dict[str, tuple[Json, Array, str]] = {
    "generic-labels": (call("generic", "sgd_labels", DATA), ONEHOT, "sgd"),
    "generic-onehot": (call("generic", "sgd_onehot", DATA), ONEHOT, "sgd"),
    "adam-labels": (call("adam", "adam_labels", DATA), ONEHOT, "adam"),
    "adam-onehot": (call("adam", "adam_onehot", DATA), ONEHOT, "adam"),
    "adam-bn": (call("adam", "adam_bn", DATA, bn=[CLASSES]), ONEHOT, "adam"),
    "softlabel": (soft(DATA), DATA["soft"], "adam"),
}

SEGMENTED: dict[str, Json] = {name: seg(name) for name in ("seg_labels", "seg_onehot")}

REFUSED: dict[str, tuple[Json, str]] = {
    "label": (
        call("adam", "adam_onehot", DATA, y=[0, 2, 3, 1]),
        "train_step_adam: label 3 at 2 is not one of 3 classes",
    ),
    "negative-label": (call("generic", "sgd_onehot", DATA, y=[0, -1, 1, 1]), "label -1 at 1 is not one of"),
    "sgd-verb-on-adam": (
        call("generic", "adam_labels", DATA),
        "@adam_labels takes 10 inputs, the caller gives 5",
    ),
    "soft-on-labels": (
        soft(DATA, "adam_labels"),
        "input 7 of @adam_labels: the module wants tensor<4xi32>, the caller gives tensor<4x3xf32>",
    ),
    "classes": (
        soft(DATA, extra=[2]),
        "the module wants tensor<4x3xf32>, the caller gives tensor<4x2xf32>",
    ),
    "size": (
        call("generic", "sgd_labels", DATA, sizes=[18, 4]),
        "parameter 1 has 3 elements by its dims and 4 by",
    ),
    "batch": (call("generic", "sgd_labels", DATA, batch=3), "the batch is 3, x has 4 rows"),
    "no-statistics": (
        call("adam", "adam_bn", DATA),
        "@adam_bn returns 9 outputs, the caller supplied 7 destinations",
    ),
    "entry": (
        call("adam", "adam_bn", DATA, fn="other"),
        "the session holds @adam_bn, the caller asks for other",
    ),
    "session": (call("adam", "adam_bn", DATA, session=None), "train_step_adam: the session is NULL"),
}
STATISTICS = (
    call("adam", "adam_bn", DATA, bn=[2]),
    "output 7 size mismatch: graph 12 bytes (tensor<3xf32>), caller 8",
)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    folder = tmp_path_factory.mktemp("train")
    for name, text in GRAPHS.items():
        (folder / f"{name}.mlir").write_text(text)
    return [create(folder / f"{name}.mlir") for name in GRAPHS]


@pytest.fixture(scope="module")
def answers(child: Child, graphs: list[Json], real_plugin: Path) -> dict[str, Json]:
    """All calls that are good, in one child."""
    ops = {name: op for name, (op, _, _) in CASES.items()} | SEGMENTED
    made = child(*graphs, *ops.values(), PJRT_PLUGIN=str(real_plugin))
    assert all(answer["made"] for answer in made[: len(graphs)]), made
    return dict(zip(ops, made[len(graphs) :], strict=True))


@pytest.mark.parametrize("case", CASES)
def test_verb_agrees_with_the_oracle(answers: dict[str, Json], case: str) -> None:
    _, y, optimizer = CASES[case]
    parameters, loss, _ = oracle(DATA, y, optimizer)
    want = np.concatenate([p.ravel() for p in parameters])
    start = np.concatenate([p.ravel() for p in DATA["state"][: len(parameters)]])

    assert answers[case]["code"] == 0, answers[case]["said"]
    assert np.abs(np.array(answers[case]["packed"]) - want).max() < 1e-5
    assert abs(answers[case]["loss"] - loss) < 1e-5
    assert np.abs(want - start).max() > 1e-2  # the step moved, so the bounds above mean something


def test_statistics_follow_the_loss(answers: dict[str, Json]) -> None:
    _, _, statistics = oracle(DATA, ONEHOT, "adam")

    assert np.abs(np.array(answers["adam-bn"]["bn"]) - np.concatenate(statistics)).max() < 1e-5


def test_the_soft_labels_are_not_the_hard_ones(answers: dict[str, Json]) -> None:
    assert abs(answers["softlabel"]["loss"] - answers["adam-onehot"]["loss"]) > 1e-2


@pytest.mark.parametrize("case", SEGMENTED)
def test_each_place_gets_its_own_label(answers: dict[str, Json], case: str) -> None:
    op = SEGMENTED[case]
    x = np.array(op["x"]["data"]).reshape(BATCH, CLASSES, SIDE, SIDE)
    y = np.array(op["y"]).reshape(BATCH, SIDE, SIDE)
    spread = np.moveaxis(np.eye(CLASSES)[y], 3, 1) if case == "seg_onehot" else y[:, None]

    assert answers[case]["code"] == 0, answers[case]["said"]
    assert answers[case]["loss"] == (x * spread).sum()
    assert answers[case]["packed"] == [1.0 - RATE * TIME, 2.0 - RATE * TIME]


@pytest.fixture(scope="module")
def refusals(child: Child, graphs: list[Json], tiny: Path) -> dict[str, Json]:
    ops = [op for op, _ in [*REFUSED.values(), STATISTICS]]
    made = child(*graphs, *ops, PJRT_PLUGIN=str(tiny))
    return dict(zip([*REFUSED, "statistics"], made[len(graphs) :], strict=True))


@pytest.mark.parametrize("case", REFUSED)
def test_verb_refuses_with_its_words(refusals: dict[str, Json], case: str) -> None:
    assert refusals[case]["code"] == 1
    assert REFUSED[case][1] in refusals[case]["said"]
    assert refusals[case]["said"].count("\n") == 1


def test_statistics_of_another_size_are_refused(refusals: dict[str, Json]) -> None:
    assert refusals["statistics"]["code"] == 4
    assert STATISTICS[1] in refusals["statistics"]["said"]
