"""Who is off when two lowerers differ, and where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_cudaboot.errors import BoxError, NumericError
from pytest_cudaboot.model import Json
from pytest_cudaboot.rules.agreement import Agreement, judge_agreement, output_names, require_two
from pytest_cudaboot.rules.controls import broken_outputs
from pytest_cudaboot.rules.tolerances import Tolerance

BOUND = Tolerance(family="dot", device="cpu", median=1e-3, p90=1e-2, peak=0.1, reason="a test's")
UPDATES = {0: 1, 1: 2}
NAMES = ("W0", "b0", "output 2")
XLA: Json = {"extras": ["pjrt_ffi_marker"], "mapped": {}, "shim": "/x/libpjrt_ffi.so"}
IREE: Json = {"extras": [], "mapped": {"_runtime.so": ["/site/iree/_runtime_libs/_runtime.so"]}, "shim": None}


def step(rate: float = 0.1) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs of a step, and what it makes of them."""
    rng = np.random.default_rng(3)
    inputs = [rng.random((4, 3)), rng.random((3, 5)), rng.random(5)]
    moved = [array - rate * rng.standard_normal(array.shape) for array in inputs[1:]]
    return inputs, [*moved, np.asarray(2.5)]


def judge(xla: list[np.ndarray], iree: list[np.ndarray], exact: list[np.ndarray]) -> Agreement:
    return judge_agreement(xla, iree, exact, tolerance=BOUND, inputs=step()[0], updates=UPDATES, names=NAMES)


def test_all_three_agree() -> None:
    _, made = step()

    agreement = judge(made, [array + 1e-6 for array in made], made)

    assert agreement.off is None
    assert agreement.require() is agreement


@pytest.mark.parametrize("who", ["xla", "iree", "both"])
def test_every_control_is_laid_at_the_right_door(who: str) -> None:
    inputs, made = step()
    for name, broken in broken_outputs(made, inputs=inputs, updates=UPDATES):
        xla, iree = (broken if who in {side, "both"} else made for side in ("xla", "iree"))

        assert judge(xla, iree, made).off == who, name


def test_a_rate_of_zero_is_off() -> None:
    assert judge(step()[1], step(0.0)[1], step()[1]).off == "iree"


def test_the_message_names_tensor_index_values_and_tolerance() -> None:
    _, made = step()
    off = [array.copy() for array in made]
    off[0][2, 4] += 1.0

    with pytest.raises(NumericError) as refusal:
        judge(made, off, made).require()

    value = made[0][2, 4]
    words = f"iree off: W0[2, 4] is {value:.9g} by xla, {value + 1:.9g} by iree, {value:.9g} by the oracle"
    assert str(refusal.value).startswith(words)
    assert "family 'dot' on 'cpu' allows median 0.001, p90 0.01, peak 0.1" in str(refusal.value)


def test_two_halves_of_a_difference_are_both_off() -> None:
    """Each is within reach of the oracle, and they are not within reach of each other."""
    _, made = step()
    low, high = ([*made[:2], made[2] * (1 + way * 0.007)] for way in (-1, 1))

    agreement = judge(low, high, made)

    assert (agreement.xla.problems(), agreement.iree.problems()) == ((), ())
    assert agreement.off == "both"
    with pytest.raises(NumericError, match=r"both off: output 2 is .*; xla against iree: the p90 error"):
        agreement.require()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_the_furthest_off(value: float) -> None:
    _, made = step()
    off = [array.copy() for array in made]
    off[1][3], off[0][0, 0] = value, off[0][0, 0] + 5.0

    agreement = judge(off, made, made)

    assert (agreement.off, agreement.worst.tensor, agreement.worst.index) == ("xla", "b0", (3,))


def test_the_worst_place_is_the_single_value_that_is_furthest_off() -> None:
    """Of two outputs, one is a little off everywhere, and one by much at one place among many."""
    exact = [np.ones(1000), np.ones(4)]
    off = [exact[0].copy(), exact[1] + 0.05]
    off[0][700] += 0.5

    agreement = judge_agreement(off, exact, exact, tolerance=BOUND)

    assert agreement.xla.worst.index == 1
    assert (agreement.worst.tensor, agreement.worst.index) == ("output 0", (700,))


def test_other_outputs_say_whose() -> None:
    _, made = step()

    with pytest.raises(NumericError, match="iree: 2 outputs, where the reference has 3"):
        judge(made, made[:2], made)


def test_outputs_are_called_as_what_they_update() -> None:
    text = "func.func @f(%x: tensor<2xf32>, %W0 : tensor<3xf32>) -> (tensor<3xf32>, tensor<f32>) {%y: tensor"

    assert output_names(text, {0: 1}, 2) == ("W0", "output 1")


BARE: Json = {"extras": [], "mapped": {"libpjrt_ffi.so": ["/x/libpjrt_ffi.so"]}, "shim": "/x/libpjrt_ffi.so"}
PLUGIN: Json = {"xla_cuda_plugin.so": ["/site/jax_plugins/xla_cuda12/xla_cuda_plugin.so"]}


def test_two_lowerers_that_are_what_they_are_called() -> None:
    require_two(XLA, IREE)


def test_a_shim_without_a_marker_is_known_by_its_plugin() -> None:
    require_two({**BARE, "mapped": BARE["mapped"] | PLUGIN}, IREE)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (lambda: (XLA, XLA), r"what was opened as iree is xla \(/x/libpjrt_ffi.so\)"),
        (lambda: (IREE, IREE), r"what was opened as xla is iree \(no shim\)"),
        (lambda: (XLA, {}), "what was opened as iree is neither xla nor iree"),
        (lambda: (BARE, IREE), "what was opened as xla is neither xla nor iree"),
    ],
)
def test_an_agreement_with_oneself_is_none(facts: Callable[[], tuple[Json, Json]], words: str) -> None:
    with pytest.raises(BoxError, match=words):
        require_two(*facts())
