"""The first bad operation of a lowerer that is the interpreter with a fault in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fixtures.reference.nets import oracle
from pytest_cudaboot.errors import NoTimeLeftError
from pytest_cudaboot.rules.first_bad import find_first_bad
from pytest_cudaboot.rules.first_bad_facts import Search, largest_error
from pytest_cudaboot.rules.signature import read_signature
from pytest_cudaboot.rules.stablehlo_cut import Cut, cut
from pytest_cudaboot.rules.stablehlo_eval import interpret
from pytest_cudaboot.rules.stablehlo_text import Function, read_function

NETS = Path(__file__).parents[2] / "fixtures/reference/nets"
Float32 = NDArray[np.float32]
Change = Callable[[str], str]


def read(entry: str) -> Function:
    return read_function((NETS / f"{entry}.mlir").read_text())


def lowerer(change: Change) -> Callable[[Cut, Sequence[Float32]], list[Float32]]:
    """It reads another text than it is given."""

    def run(cut: Cut, arrays: Sequence[Float32]) -> list[Float32]:
        function = read_function(change(cut.text))
        values = interpret(function, dict(zip(function.arguments, arrays, strict=True)))
        return [np.asarray(values[name], np.float32) for name in function.returned]

    return run


def search(entry: str, change: Change, **how: Any) -> Search:
    return find_first_bad(
        read(entry), oracle.inputs(entry, 3), lowerer(change), lowerer="it", **{"platform": "cpu", **how}
    )


def replaced(old: str, new: str) -> Change:
    return lambda text: text.replace(old, new)


CONVOLUTION = "%15 = stablehlo.convolution(%14, %W2) dim_numbers = [b, f, 0, 1]x[o, i, "
REDUCTION = "%55 = stablehlo.reduce(%52 init: %54) applies stablehlo.add across dimensions = "
FAULTS = {
    "a transposed kernel": ("cifar8_train_step", CONVOLUTION + "0, 1]", CONVOLUTION + "1, 0]", "%15"),
    "another axis": ("mlp_train_step", REDUCTION + "[0]", REDUCTION + "[1]", "%55"),
    "a constant": (
        "mlp_train_step",
        "%28 = stablehlo.constant dense<7.812500e-03>",
        "%28 = stablehlo.constant dense<7.89e-03>",
        "%28",
    ),
    "a sign": ("linear_fwd", "stablehlo.add", "stablehlo.subtract", "%2"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_shows_alone(fault: str) -> None:
    entry, old, new, value = FAULTS[fault]
    assert old in (NETS / f"{entry}.mlir").read_text()

    bad = search(entry, replaced(old, new)).bad

    assert bad is not None
    assert (bad.value, bad.alone, bad.cut.outputs) == (value, True, (value,))
    assert (NETS / f"{entry}.mlir").read_text().splitlines()[
        bad.operation.line - 1
    ].strip() == bad.operation.text
    assert bad.error > bad.tolerance


@pytest.mark.parametrize("entry", ["linear_train_step", "mlp_train_step"])
def test_rounding_is_no_fault(entry: str) -> None:
    found = search(entry, str)

    assert found.bad is None
    assert found.words == f"none of {len(read(entry).operations)} operations is off by itself"


def hides(text: str) -> str:
    """Wrong only where both operations are there and what lies between them is not asked for, as a fusion is."""
    returned = text[text.rindex("return") :]
    if "%24 = stablehlo.subtract" in text and "%25 = " in text and not re.search(r"%24\b", returned):
        return text.replace("%24 = stablehlo.subtract", "%24 = stablehlo.add")
    return text


def test_a_fault_that_needs_its_neighbour_is_shown_by_the_two() -> None:
    found = search("mlp_train_step", hides)

    assert found.bad is not None
    assert [op.results[0] for op in found.bad.cut.operations] == ["%24", "%25"]
    assert not found.bad.alone
    assert "(%25), in 2 operations together" in found.words


def test_what_shows_among_many_grows_until_it_shows_again() -> None:
    """The sum is wrong wherever the relu two operations before it is made beside it, and no further back."""

    def beside_the_relu(text: str) -> str:
        return text.replace("%8 = stablehlo.add", "%8 = stablehlo.subtract") if "%5 = " in text else text

    found = search("mlp_fwd", beside_the_relu)

    assert found.bad is not None
    assert (found.bad.value, found.bad.alone) == ("%8", False)
    assert [op.results[0] for op in found.bad.cut.operations] == ["%5", "%6", "%7", "%8"]
    assert found.words == "it is off first in stablehlo.add at line 11 (%8), in 4 operations together"


def test_what_shows_nowhere_else_is_shown_in_what_it_was_seen_in() -> None:
    def with_all_values(text: str) -> str:
        returned = text[text.rindex("return") :]
        return text.replace("%2 = stablehlo.add", "%2 = stablehlo.subtract") if "%0," in returned else text

    bad = search("linear_fwd", with_all_values).bad

    assert bad is not None
    assert (bad.value, bad.cut.outputs, bad.output) == ("%2", ("%0", "%1", "%2"), 2)


def test_what_float64_is_not_computed_of_is_held_against_the_other_lowerer() -> None:
    text = """func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = chlo.erf %x : tensor<4xf32>
      %1 = stablehlo.negate %0 : tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    inputs = [np.ones(4, np.float32)]

    def made(factor: float) -> Callable[[Cut, Sequence[Float32]], list[Float32]]:
        values = {"%0": np.full(4, factor, np.float32), "%1": np.full(4, -factor, np.float32)}
        return lambda cut, _arrays: [values[name] for name in cut.outputs]

    alone = find_first_bad(read_function(text), inputs, made(2), lowerer="one", platform="cpu")
    both = find_first_bad(
        read_function(text), inputs, made(2), lowerer="one", platform="cpu", peer=("other", made(3))
    )

    assert "1 kinds without a reference: chlo.erf" in alone.words
    assert both.bad is not None
    assert (both.bad.value, both.bad.reference) == ("%0", "other")


def test_without_time_the_search_says_how_far_it_came() -> None:
    calls = []

    def run(cut: Cut, arrays: Sequence[Float32]) -> list[Float32]:
        calls.append(cut.entry)
        if len(calls) > 1:
            raise NoTimeLeftError("no more time")
        return lowerer(str)(cut, arrays)

    function = read("mlp_train_step")
    found = find_first_bad(function, oracle.inputs("mlp_train_step", 3), run, lowerer="it", platform="cpu")

    assert found.words == "none of 64 operations is off by itself; no more time"


def test_ten_bits_of_a_product_are_a_fault_on_a_cpu_only() -> None:
    def run(cut: Cut, arrays: Sequence[Float32]) -> list[Float32]:
        short = [
            (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if array.ndim else array
            for array in arrays
        ]
        return lowerer(str)(cut, short if "dot_general" in cut.text else arrays)

    function, inputs = read("linear_fwd"), oracle.inputs("linear_fwd", 3)
    product = read_function(cut(function, ["%0"], entry="product").text)

    on = {
        platform: find_first_bad(product, inputs[:2], run, lowerer="it", platform=platform).bad
        for platform in ("cpu", "cuda")
    }

    assert on["cuda"] is None
    assert on["cpu"] is not None


@pytest.mark.parametrize("entry", sorted(oracle.ORACLES))
def test_operations_can_be_cut_out_alone(entry: str) -> None:
    function = read(entry)
    for op in function.operations[:: 1 + len(function.operations) // 60]:
        alone = cut(function, op.results, given=function.types, entry="alone")
        assert read_signature(alone.text).outputs[0].shape == op.types[0].shape
        assert {
            kind.dtype for kind in (*read_signature(alone.text).inputs, *read_signature(alone.text).outputs)
        } == {"f32"}
        assert [one.results for one in alone.operations] in ([op.results], [])


def test_equal_values_of_any_kind_differ_by_nothing_and_others_without_bound() -> None:
    """What float32 can not hold is infinite there."""
    want, got = np.array([np.nan, np.inf, -np.inf, 1e300]), np.array([np.nan, np.inf, -np.inf, np.inf])

    assert largest_error(got, want, np.ones(4)) == 0.0
    for place, other in enumerate((1.0, -np.inf, np.nan, 1e30)):
        spoilt = got.copy()
        spoilt[place] = other
        assert largest_error(spoilt, want, np.ones(4)) >= 1e300
