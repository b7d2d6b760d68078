"""Inputs for graphs of which only the text is known, and what their outputs are held to."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures.reference.nets import oracle
from pytest_cudaboot.errors import NumericError
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.seeded import family_of, judge, seeded_inputs, updates_of
from pytest_cudaboot.rules.signature import Signature, TensorType, read_signature
from pytest_cudaboot.rules.tolerances import load_tolerances

NETS = suite_root() / "fixtures" / "reference" / "nets"
TOLERANCE = load_tolerances().of("seeded-dot", "cpu")


def signature(entry: str) -> Signature:
    return read_signature((NETS / f"{entry}.mlir").read_text())


@pytest.mark.parametrize("entry", ["linear_train_step", "many_train_step"])
def test_inputs_have_the_signatures_shapes_and_are_positive(entry: str) -> None:
    told = signature(entry)

    made = seeded_inputs(told, 1)

    assert [array.shape for array in made] == [tensor.shape for tensor in told.inputs]
    assert all(array.dtype == np.float32 and (array > 0).all() for array in made)
    assert all(np.array_equal(one, other) for one, other in zip(made, seeded_inputs(told, 1), strict=True))
    assert not np.array_equal(made[0], seeded_inputs(told, 2)[0])


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn", "cifar8_bn", "many"])
def test_what_a_step_updates_is_what_the_oracle_says(name: str) -> None:
    entry = f"{name}_train_step"
    assert updates_of(signature(entry)).items() <= dict(oracle.UPDATES[entry]).items()


def test_a_forward_graph_updates_nothing() -> None:
    assert updates_of(signature("mlp_fwd")) == {}


@pytest.mark.parametrize("entry", ["linear_train_step", "mlp_train_step"])
def test_a_step_on_them_is_finite_and_moves(entry: str) -> None:
    told = signature(entry)
    inputs = seeded_inputs(told, 3)
    wanted = oracle.ORACLES[entry](inputs)

    judged = judge(wanted, wanted, signature=told, inputs=inputs, tolerance=TOLERANCE).require()

    assert all(np.isfinite(array).all() for array in wanted)
    assert judged.moved > 0


def test_a_step_that_was_not_made_is_seen() -> None:
    told = signature("linear_train_step")
    inputs = seeded_inputs(told, 3)
    wanted = oracle.ORACLES["linear_train_step"](inputs)
    unmoved = [*inputs[1:3], wanted[2]]

    with pytest.raises(NumericError, match="outputs differ"):
        judge(unmoved, wanted, signature=told, inputs=inputs, tolerance=TOLERANCE).require()


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_reference_that_says_nothing_compares_nothing(value: float) -> None:
    told = Signature("f", (TensorType((2,), "f32"),), (TensorType((3,), "f32"),))
    silent = [np.full(3, value, np.float32)]

    with pytest.raises(NumericError, match="no finite value other than 0"):
        judge(silent, silent, signature=told, inputs=seeded_inputs(told, 1), tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("stablehlo.dot_general", "seeded-dot"),
        ("stablehlo.rsqrt %x", "seeded-norm"),
        ("stablehlo.convolution(%x)", "seeded-conv"),
        ("stablehlo.convolution(%x)\n" * 6, "seeded-deep-conv"),
        ("stablehlo.convolution(%x) {feature_group_count = 8 : i64}", "seeded-depthwise"),
        ("stablehlo.convolution(%x) {feature_group_count = 1 : i64}", "seeded-conv"),
    ],
)
def test_the_hardest_operation_says_the_family(text: str, family: str) -> None:
    assert family_of(text) == family
    assert load_tolerances().of(family, "cuda").p90 > 0
