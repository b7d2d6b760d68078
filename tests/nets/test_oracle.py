"""The oracle against known answers and finite differences; its inputs against what they promise."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

from fixtures.reference.nets import oracle

STEPS = sorted(oracle.RATE)


def loss(entry: str, inputs: list[oracle.Array]) -> float:
    return float(oracle.ORACLES[entry](inputs)[-1])


@pytest.mark.parametrize("entry", STEPS)
def test_gradients_agree_with_finite_differences(entry: str) -> None:
    rng = np.random.default_rng(7)
    inputs: list[oracle.Array] = [array.astype(np.float64) for array in oracle.inputs(entry, 7)]
    outputs = oracle.ORACLES[entry](inputs)
    width = 1e-6
    for out, into in oracle.UPDATES[entry].items():
        gradient = (inputs[into] - outputs[out]) / inputs[oracle.RATE[entry]]
        direction = gradient + rng.standard_normal(gradient.shape) * np.sqrt(np.square(gradient).mean())
        losses = [
            loss(entry, [*inputs[:into], inputs[into] + way * direction, *inputs[into + 1 :]])
            for way in (width, -width)
        ]
        slope = (losses[0] - losses[1]) / (2 * width)

        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-6)


@pytest.mark.parametrize("entry", STEPS)
def test_a_net_of_zeros_knows_nothing(entry: str) -> None:
    inputs = oracle.inputs(entry, 0)
    for index in oracle.UPDATES[entry].values():
        inputs[index] = np.zeros_like(inputs[index])

    assert loss(entry, list(inputs)) == pytest.approx(math.log(10))


def test_linear_by_hand() -> None:
    x = np.zeros((128, 784))
    x[:, 3] = 2.0
    weights = np.zeros((784, 10))
    onehot = np.eye(10)[[1] * 128]

    new_weights, new_bias, _ = oracle.ORACLES["linear_train_step"](
        [x, weights, np.zeros(10), np.asarray(0.5), onehot]
    )

    assert new_bias[:3] == pytest.approx([-0.05, 0.45, -0.05])
    assert new_weights[3, :3] == pytest.approx([-0.1, 0.9, -0.1])
    assert np.count_nonzero(new_weights) == 10


def test_large_logits_do_not_overflow() -> None:
    inputs = oracle.inputs("linear_train_step", 0)
    inputs[2] = np.linspace(0.0, 1e4, 10).astype(np.float32)

    assert all(np.isfinite(array).all() for array in oracle.ORACLES["linear_train_step"](inputs))


@pytest.mark.parametrize("entry", STEPS)
def test_the_learning_rate_is_the_scalar_among_the_inputs(entry: str) -> None:
    assert [i for i, shape in enumerate(oracle.shapes(entry)) if shape == ()] == [oracle.RATE[entry]]


@pytest.mark.parametrize("entry", STEPS)
def test_a_step_moves_every_parameter_by_far_more_than_float32_rounds(entry: str) -> None:
    inputs = oracle.inputs(entry, 1)
    outputs = oracle.ORACLES[entry](inputs)

    assert set(oracle.UPDATES[entry]) == set(range(len(outputs) - 1))
    for out, into in oracle.UPDATES[entry].items():
        moved = np.sqrt(np.square(outputs[out] - inputs[into]).mean())
        assert moved > 1e3 * np.spacing(np.sqrt(np.square(inputs[into]).mean()))


@pytest.mark.parametrize("entry", sorted(oracle.ORACLES))
def test_inputs_are_float32_seeded_and_differ_by_seed(entry: str) -> None:
    first, again, other = (oracle.inputs(entry, seed) for seed in (4, 4, 5))

    assert [array.shape for array in first] == oracle.shapes(entry)
    assert {array.dtype for array in first} == {np.dtype(np.float32)}
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_hidden_units_keep_away_from_the_corner_of_relu() -> None:
    x, w0, b0, w1, b1, *_ = (array.astype(np.float64) for array in oracle.inputs("mlp_fwd", 2))
    first = x @ w0 + b0
    second = np.maximum(first, 0.0) @ w1 + b1
    for total in (first, second):
        assert np.abs(total).min() > 0.9 * oracle.MARGIN * np.sqrt(np.square(total).mean())


def test_other_shapes_are_refused() -> None:
    inputs = oracle.inputs("linear_fwd", 0)

    with pytest.raises(ValueError, match=r"linear_fwd takes shapes .*\(784, 10\).* not .*\(10, 784\)"):
        oracle.ORACLES["linear_fwd"]([inputs[0], inputs[1].T, inputs[2]])


def test_it_loads_by_its_path_alone() -> None:
    spec = importlib.util.spec_from_file_location("an_oracle", Path(oracle.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert set(module.ORACLES) == set(module.FAMILY) == set(module.UPDATES) == set(oracle.ORACLES)
