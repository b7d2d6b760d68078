"""The graphs that the train verbs are asked to run, in the verbs' order of arguments: parameters, x, y, lr, t.

They are rendered from the reference's own pieces. It holds no test.
"""

from __future__ import annotations

from fixtures.reference.nets import stablehlo as hlo
from fixtures.reference.nets.layers import Dense
from fixtures.reference.nets.objective import cross_entropy, sgd
from fixtures.reference.nets.stablehlo import Graph, Value

BATCH, PIXELS, CLASSES, SIDE = 4, 6, 3, 2
RATE, TIME = 0.5, 3.0
BETAS, EPSILON = (0.9, 0.999), 1e-8


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
