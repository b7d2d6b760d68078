"""The interpreter against the nets' own oracles, and what it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fixtures.reference.nets import oracle
from pytest_cudaboot.errors import NoReferenceError
from pytest_cudaboot.rules.stablehlo_eval import evaluate, interpret, rounding_scale
from pytest_cudaboot.rules.stablehlo_text import Function, Operation, read_function

Values = NDArray[Any]

NETS = Path(__file__).parents[2] / "fixtures/reference/nets"
# The oracles compute with these numbers, which the texts can only give as float32 has them.
EXACT = {"1.000000e-05": 1e-5, "1.04166667e-02": 1 / 96, "6.10351562e-05": 2.0**-14}


def exact_constants(function: Function) -> dict[str, Values]:
    return {
        op.results[0]: np.full(op.types[0].shape, exact)
        for op in function.operations
        for digits, exact in EXACT.items()
        if op.kind == "constant" and f"dense<{digits}>" in op.text
    }


def single(text: str, *arguments: str) -> Operation:
    """One operation on `%0`, `%1` of those types, which makes `%r`."""
    named = ", ".join(f"%{place}: tensor<{kind}>" for place, kind in enumerate(arguments))
    function = f"func.func @f({named}) -> tensor<f32> {{\n  %r = {text}\n  return %r : tensor<f32>\n}}"
    return read_function(function).operations[0]


def made(text: str, *operands: Values) -> object:
    kinds = ["x".join([*map(str, one.shape), "f32"]) for one in operands]
    listed: object = evaluate(single(text, *kinds), operands)[0].tolist()
    return listed


@pytest.mark.parametrize("entry", sorted(oracle.ORACLES))
def test_a_whole_net_is_the_oracles(entry: str) -> None:
    function, inputs = read_function((NETS / f"{entry}.mlir").read_text()), oracle.inputs(entry, 3)

    values = interpret(
        function, dict(zip(function.arguments, inputs, strict=True)), exact_constants(function)
    )

    updates = oracle.UPDATES[entry]
    for place, (name, want) in enumerate(zip(function.returned, oracle.ORACLES[entry](inputs), strict=True)):
        assert np.abs(values[name] - want).max() <= 1e-12 * np.abs(want).max()
        if place in updates:
            moved = want - inputs[updates[place]]
            assert np.abs(values[name] - want).max() <= 1e-10 * np.abs(moved).max()


def test_a_constant_is_what_float32_holds_of_it() -> None:
    assert made("stablehlo.constant dense<0.1> : tensor<f32>") == float(np.float32(0.1))
    assert made("stablehlo.constant dense<0xFF800000> : tensor<f32>") == -np.inf
    assert made("stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>") == [[1, 2], [3, 4]]


def test_dimensions_go_where_the_text_says() -> None:
    array = np.arange(6.0).reshape(2, 3)

    text = "stablehlo.broadcast_in_dim %0, dims = [2, 0] : (tensor<2x3xf32>) -> tensor<3x1x2xf32>"
    assert made(text, array) == array.T[:, None, :].tolist()
    text = "stablehlo.transpose %0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>"
    assert made(text, array) == array.T.tolist()
    text = "stablehlo.slice %0 [0:2, 0:3:2] : (tensor<2x3xf32>) -> tensor<2x2xf32>"
    assert made(text, array) == array[:, ::2].tolist()


def test_a_product_with_batches() -> None:
    left, right = np.arange(12.0).reshape(2, 2, 3), np.arange(12.0).reshape(2, 3, 2)
    types = "(tensor<2x2x3xf32>, tensor<2x3x2xf32>) -> tensor<2x2x2xf32>"

    text = f"stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : {types}"
    assert made(text, left, right) == (left @ right).tolist()


def test_a_strided_padded_grouped_convolution() -> None:
    """By hand: each of two channels has a kernel of its own, [1, 10]."""
    image, kernel = np.array([[[1.0, 2, 3], [4, 5, 6]]]), np.array([[[1.0, 10]], [[1.0, 10]]])
    text = (
        "stablehlo.convolution(%0, %1) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], "
        "window = {stride = [2], pad = [[1, 0]]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : "
        "(tensor<1x2x3xf32>, tensor<2x1x2xf32>) -> tensor<1x2x2xf32>"
    )

    assert made(text, image, kernel) == [[[10.0, 32.0], [40.0, 65.0]]]


def test_the_same_operand_twice() -> None:
    assert made("stablehlo.multiply %0, %0 : tensor<2xf32>", np.array([2.0, 3.0])) == [4.0, 9.0]


def test_rounding_is_counted_in_what_cancels() -> None:
    subtract = single("stablehlo.subtract %0, %1 : tensor<f32>", "f32", "f32")
    operands = [np.array(1000.0), np.array(999.0)]

    scale = rounding_scale(subtract, operands, evaluate(subtract, operands)[0])

    assert float(scale) == pytest.approx(2000.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("stablehlo.fft %0, type = RFFT : tensor<2xf32>", "line 2: 'stablehlo.fft' is not computed here"),
        ("stablehlo.reverse %0 : tensor<2xf32>", "line 2: stablehlo.reverse without dims"),
        ("stablehlo.reshape %0 : (tensor<2xf32>) -> tensor<3xf32>", "line 2: stablehlo.reshape is not read"),
    ],
)
def test_what_is_not_known_is_said(text: str, why: str) -> None:
    with pytest.raises(NoReferenceError, match=why):
        evaluate(single(text, "2xf32"), [np.ones(2)])
