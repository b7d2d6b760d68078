"""The train verbs of the XLA shim, against a float64 oracle: what they pass to a graph, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fixtures.reference.nets import stablehlo as hlo
from fixtures.reference.nets.layers import Dense
from fixtures.reference.nets.objective import cross_entropy, sgd
from fixtures.reference.nets.stablehlo import Graph, Value
from tests.ffi.helpers import Child, Json, create

Array = npt.NDArray[np.float64]

BATCH, PIXELS, CLASSES, SIDE = 4, 6, 3, 2
RATE, TIME = 0.5, 3.0
BETAS, EPSILON = (0.9, 0.999), 1e-8


# ---- the graphs, with the verbs' order of arguments: parameters, x, y, lr, t


def labels(g: Graph, shape: tuple[int, ...]) -> Value:
    """Y as int32 labels, spread out as one-hot rows inside the graph; `module` writes its true type."""
    g.argument("y", shape[:1])
    integers = hlo.tensor(shape, "i32")
    spread = g.emit(
        f"broadcast_in_dim %y, dims = [0] : ({hlo.tensor(shape[:1], 'i32')}) -> {integers}", shape
    )
    count = g.emit(f"iota dim = 1 : {integers}", shape)
    flags = hlo.tensor(shape, "i1")
    equal = g.emit(
        f"compare EQ, {spread.name}, {count.name}, SIGNED : ({integers}, {integers}) -> {flags}", shape
    )
    return g.emit(f"convert {equal.name} : ({flags}) -> {hlo.tensor(shape)}", shape)


def moments(g: Graph, logits: Value) -> list[Value]:
    """Mean and variance of each class over the batch, as a batch norm would return them."""
    share = hlo.constant_like(g, f"{1 / BATCH:.6e}", (CLASSES,))
    mean = hlo.binary(g, "multiply", hlo.reduce(g, "add", logits, (0,)), share)
    centred = hlo.binary(g, "subtract", logits, hlo.broadcast(g, mean, logits.shape, (1,)))
    squares = hlo.reduce(g, "add", hlo.binary(g, "multiply", centred, centred), (0,))
    return [mean, hlo.binary(g, "multiply", squares, share)]


def corrected(g: Graph, moment: Value, beta: float, time: Value) -> Value:
    power = hlo.binary(g, "power", hlo.constant(g, f"{beta:.6e}"), time)
    rest = hlo.binary(g, "subtract", hlo.constant(g, "1.000000e+00"), power)
    return hlo.binary(g, "divide", moment, hlo.broadcast(g, rest, moment.shape, ()))


def decayed(g: Graph, old: Value, new: Value, beta: float) -> Value:
    kept = hlo.binary(g, "multiply", hlo.constant_like(g, f"{beta:.6e}", old.shape), old)
    added = hlo.binary(g, "multiply", hlo.constant_like(g, f"{1 - beta:.6e}", old.shape), new)
    return hlo.binary(g, "add", kept, added)


def adam(g: Graph, state: list[Value], gradient: Value, rate: Value, time: Value) -> list[Value]:
    """The parameter and its two moments, one step on."""
    old, m, v = state
    m = decayed(g, m, gradient, BETAS[0])
    v = decayed(g, v, hlo.binary(g, "multiply", gradient, gradient), BETAS[1])
    root = hlo.unary(g, "sqrt", corrected(g, v, BETAS[1], time))
    below = hlo.binary(g, "add", root, hlo.constant_like(g, f"{EPSILON:.6e}", old.shape))
    step = hlo.binary(g, "divide", corrected(g, m, BETAS[0], time), below)
    return [sgd(g, old, step, rate), m, v]


def graph(name: str, *, integers: bool, optimizer: str, bn: bool = False) -> str:
    """A dense layer and its loss; parameters are W and b and, for Adam, their first and then second moments."""
    g = Graph(name)
    layer = Dense(PIXELS, CLASSES)
    copies = ("", "m", "v") if optimizer == "adam" else ("",)
    sets = [[g.argument(kind + of, shape) for of, shape in layer.parameters()] for kind in copies]
    x = g.argument("x", (BATCH, PIXELS))
    y = labels(g, (BATCH, CLASSES)) if integers else g.argument("y", (BATCH, CLASSES))
    rate = g.argument("lr", ())
    logits = layer.forward(g, x, sets[0])
    loss, slope = cross_entropy(g, logits, y)
    gradients = layer.gradients(g, x, slope)
    if optimizer == "adam":
        time = g.argument("t", ())
        moved = [
            adam(g, [one[i] for one in sets], gradient, rate, time) for i, gradient in enumerate(gradients)
        ]
        made = [part[i] for i in range(3) for part in moved]
    else:
        made = [sgd(g, old, gradient, rate) for old, gradient in zip(sets[0], gradients, strict=True)]
    text = g.module([*made, loss, *(moments(g, logits) if bn else [])])
    return text.replace(f"%y: tensor<{BATCH}xf32>", f"%y: tensor<{BATCH}xi32>")


def segmentation(name: str, *, integers: bool) -> str:
    """Not a net: it tells where each label went, which is what the verb is about. The loss sums y times x."""
    g = Graph(name)
    shape = (BATCH, CLASSES, SIDE, SIDE)
    w, x = g.argument("w", (2,)), g.argument("x", shape)
    y = g.argument("y", (BATCH, SIDE, SIDE) if integers else shape)
    rate, time = g.argument("lr", ()), g.argument("t", ())
    if integers:
        whole = hlo.tensor(y.shape, "i32")
        y = g.emit(f"convert %y : ({whole}) -> {hlo.tensor(y.shape)}", y.shape)
        y = hlo.broadcast(g, y, shape, (0, 2, 3))
    loss = hlo.reduce(g, "add", hlo.binary(g, "multiply", x, y), (0, 1, 2, 3))
    moved = sgd(g, w, hlo.broadcast(g, time, (2,), ()), rate)
    text = g.module([moved, loss])
    return text.replace(
        f"%y: {hlo.tensor((BATCH, SIDE, SIDE))}", f"%y: {hlo.tensor((BATCH, SIDE, SIDE), 'i32')}"
    )


GRAPHS = {
    "sgd_labels": graph("sgd_labels", integers=True, optimizer="sgd"),
    "sgd_onehot": graph("sgd_onehot", integers=False, optimizer="sgd"),
    "adam_labels": graph("adam_labels", integers=True, optimizer="adam"),
    "adam_onehot": graph("adam_onehot", integers=False, optimizer="adam"),
    "adam_bn": graph("adam_bn", integers=True, optimizer="adam", bn=True),
    "seg_labels": segmentation("seg_labels", integers=True),
    "seg_onehot": segmentation("seg_onehot", integers=False),
}


# ---- the oracle


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


# ---- the calls


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
