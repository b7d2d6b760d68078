"""The oracle against known answers and finite differences; its inputs against what they promise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.reference.nets import exact, oracle
from pytest_cudaboot.project import find_project
from pytest_cudaboot.run.nets import load_net

STEPS = sorted(oracle.RATE)


def loss(entry: str, inputs: list[oracle.Array]) -> float:
    return float(oracle.ORACLES[entry](inputs)[-1])


def forward_loss(entry: str, inputs: list[oracle.Array]) -> float:
    """The same from the forward graph's oracle, by a formula of its own, without the work of going backward."""
    *images_and_parameters, _rate, onehot = inputs
    (logits,) = oracle.ORACLES[entry.replace("_train_step", "_fwd")](images_and_parameters)
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - (logits * onehot).sum(axis=1)))


@pytest.mark.parametrize("entry", STEPS)
def test_gradients_agree_with_finite_differences(entry: str) -> None:
    rng = np.random.default_rng(7)
    inputs: list[oracle.Array] = [array.astype(np.float64) for array in oracle.inputs(entry, 7)]
    outputs = oracle.ORACLES[entry](inputs)
    assert forward_loss(entry, inputs) == pytest.approx(float(outputs[-1]), rel=1e-12)
    width = 1e-6  # no choice lies that close to its border
    for out, into in oracle.UPDATES[entry].items():
        gradient = (inputs[into] - outputs[out]) / inputs[oracle.RATE[entry]]
        direction = gradient + rng.standard_normal(gradient.shape) * np.sqrt(np.square(gradient).mean())
        direction /= np.linalg.norm(direction)
        losses = [
            forward_loss(entry, [*inputs[:into], inputs[into] + way * direction, *inputs[into + 1 :]])
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


def cut(array: oracle.Array) -> oracle.Float64:
    """What TF32 leaves of it: ten bits of the mantissa, rounded."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32) + np.uint32(0x1000)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def choices(net: str, inputs: list[oracle.Array], rounded: Callable[[oracle.Array], oracle.Float64]) -> Any:
    """Which units are on, and where in its window each of them is, when every product's factors are rounded."""
    value, *parameters = (array.astype(np.float64) for array in inputs)
    rest, made = iter(parameters), []
    for layer in oracle.NETS[net].layers:
        own = [next(rest) for _ in layer.shapes()]
        if own:
            value = layer.forward(rounded(value), [rounded(own[0]), own[1]])
        else:
            # A slope of ones comes back from where the choice fell.
            made.append(layer.backward(value, [], np.ones_like(layer.forward(value, [])))[1])
            value = layer.forward(value, [])
    return made


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("net", ["cnn", "mlp"])
def test_tf32_switches_no_choice(net: str, seed: int) -> None:
    inputs: list[oracle.Array] = list(oracle.inputs(f"{net}_fwd", seed))

    exact, rounded = choices(net, inputs, np.asarray), choices(net, inputs, cut)

    assert len(exact) == 2
    assert all(np.array_equal(a, b) for a, b in zip(exact, rounded, strict=True))


def test_without_the_margin_tf32_would_switch_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(oracle.NETS, "cnn", dataclasses.replace(oracle.NETS["cnn"], margin=0.0))
    inputs: list[oracle.Array] = list(oracle.inputs("cnn_fwd", 0))

    exact, rounded = choices("cnn", inputs, np.asarray), choices("cnn", inputs, cut)

    assert not all(np.array_equal(a, b) for a, b in zip(exact, rounded, strict=True))


def test_patches_lie_in_the_middle_and_on_every_edge() -> None:
    images = oracle.inputs("cnn_fwd", 0)[0].reshape(-1, 28, 28)

    assert images[:, 0].any()
    assert images[:, -1].any()
    assert images[:, :, 0].any()
    assert images[:, :, -1].any()
    assert (images.reshape(128, -1) > 0).sum(axis=1).max() <= oracle.PATCH**2


def test_a_convolution_by_hand() -> None:
    """The kernel is laid on as it is written, not turned, and sees zeros beyond the edge."""
    image = np.zeros((1, 1, 4, 4))
    image[0, 0, 0, 0], image[0, 0, 2, 2] = 1.0, 10.0
    kernel = np.arange(1.0, 10.0).reshape(1, 1, 3, 3)

    (made,) = exact.Conv(1, 1).forward(image, [kernel, np.asarray([0.5])])[0]

    assert (made - 0.5).tolist() == [[5, 4, 0, 0], [2, 91, 80, 70], [0, 60, 50, 40], [0, 30, 20, 10]]


def test_a_pool_by_hand() -> None:
    """The slope goes to the first of equals, and nowhere where nothing is above zero."""
    x = np.asarray([[-1.0, -2.0, 0.0, 3.0], [-3.0, -1.0, 3.0, 1.0]]).reshape(1, 1, 2, 4)

    gradients, slope = exact.ReluPool().backward(x, [], np.asarray([5.0, 7.0]).reshape(1, 1, 1, 2))

    assert exact.ReluPool().forward(x, []).ravel().tolist() == [0, 3]
    assert gradients == []
    assert slope[0, 0].tolist() == [[0, 0, 0, 7], [0, 0, 0, 0]]


def test_other_shapes_are_refused() -> None:
    inputs = oracle.inputs("linear_fwd", 0)

    with pytest.raises(ValueError, match=r"linear_fwd takes shapes .*\(784, 10\).* not .*\(10, 784\)"):
        oracle.ORACLES["linear_fwd"]([inputs[0], inputs[1].T, inputs[2]])


def test_it_loads_by_its_path_with_its_neighbour() -> None:
    project = find_project("reference", Path())

    loaded = [load_net(project, name) for name in project.nets]

    assert [net.name for net in loaded] == list(project.nets) == sorted(oracle.NETS)
    assert {net.step.entry: net.step.family for net in loaded}.items() <= oracle.FAMILY.items()
