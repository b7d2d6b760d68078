"""Comparison of outputs with a reference: what agrees, what is refused and in which words, and the controls."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from fixtures.reference.nets import oracle
from pytest_cudaboot.errors import CatalogError, NumericError, UsageError
from pytest_cudaboot.rules.controls import broken_outputs, one_value_off, rate_of_zero, require_controls
from pytest_cudaboot.rules.numerics import compare, rms
from pytest_cudaboot.rules.tolerances import Tolerance, load_tolerances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fixtures.reference.nets.oracle import Float32
    from pytest_cudaboot.rules.numerics import Arrays, Comparison, Float64

STEPS = sorted(oracle.RATE)
BOUNDS = load_tolerances()
LOOSE = Tolerance(family="dot", device="cpu", median=0.1, p90=0.2, peak=0.5, reason="a test's")


class Computed(NamedTuple):
    """An entry's inputs, and what the oracle makes of them; nobody writes into them."""

    inputs: Sequence[Float32]
    want: Sequence[Float64]

    def check(self, entry: str, got: Arrays, tolerance: Tolerance) -> Comparison:
        updates = oracle.UPDATES[entry]
        return compare(got, self.want, tolerance=tolerance, inputs=self.inputs, updates=updates)


@functools.cache
def computed(entry: str, seed: int, *, still: bool = False) -> Computed:
    """Once for all tests: float64 takes its time.

    :param still: at a rate of zero.
    """
    given = oracle.inputs(entry, seed)
    inputs = rate_of_zero(given, oracle.RATE[entry]) if still else given
    return Computed(inputs, oracle.ORACLES[entry](inputs))


def noisy(entry: str, made: Computed, relative: float) -> list[Float64]:
    """The oracle's outputs with noise of a relative size on what moves, as another summation order leaves it."""
    rng = np.random.default_rng(0)
    outputs = list(made.want)
    for index, output in enumerate(outputs):
        before = made.inputs[oracle.UPDATES[entry][index]] if index in oracle.UPDATES[entry] else 0.0
        outputs[index] = output + relative * rms(output - before) * rng.standard_normal(output.shape)
    return outputs


@pytest.mark.parametrize("entry", sorted(oracle.ORACLES))
@pytest.mark.parametrize(("device", "noise"), [("cpu", 3e-6), ("cuda-strict", 3e-6), ("cuda", 8e-4)])
def test_rounding_of_the_device_class_agrees(entry: str, device: str, noise: float) -> None:
    made = computed(entry, 3)

    comparison = made.check(entry, noisy(entry, made, noise), BOUNDS.of(oracle.FAMILY[entry], device))

    assert comparison.require() is comparison
    assert noise / 10 < comparison.median < noise * 4


@pytest.mark.parametrize("entry", sorted(oracle.ORACLES))
@pytest.mark.parametrize(("device", "noise"), [("cpu", 2e-4), ("cuda-strict", 8e-4), ("cuda", 1e-2)])
def test_a_coarser_arithmetic_than_the_class_has_is_refused(entry: str, device: str, noise: float) -> None:
    made = computed(entry, 3)

    with pytest.raises(NumericError, match="the median error"):
        made.check(entry, noisy(entry, made, noise), BOUNDS.of(oracle.FAMILY[entry], device)).require()


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda-strict"])
@pytest.mark.parametrize("entry", STEPS)
def test_every_control_is_refused(entry: str, device: str) -> None:
    inputs, want = computed(entry, 5)
    updates = oracle.UPDATES[entry]

    tolerance = BOUNDS.of(oracle.FAMILY[entry], device)

    names = require_controls(want, want, tolerance=tolerance, inputs=inputs, updates=updates)

    assert len(names) == len(want) + len(updates) + 1
    assert names[-1] == "step dropped"
    assert "update of output 0 not applied" in names
    assert f"one value of output {len(want) - 1} off" in names


@pytest.mark.parametrize("entry", STEPS)
def test_a_learning_rate_of_zero_is_refused(entry: str) -> None:
    still = computed(entry, 5, still=True).want

    with pytest.raises(NumericError, match=r"the median error 1 exceeds 0.00[356]"):
        computed(entry, 5).check(entry, still, BOUNDS.of(oracle.FAMILY[entry], "cuda")).require()


@pytest.mark.parametrize("entry", STEPS)
def test_a_reference_that_does_not_move_compares_nothing(entry: str) -> None:
    still = computed(entry, 5, still=True)

    with pytest.raises(NumericError, match="the reference does not move what output 0 updates"):
        still.check(entry, still.want, LOOSE).require()


def test_a_control_that_is_accepted_is_an_error() -> None:
    outputs = [np.ones(10_000)]
    tolerance = Tolerance(family="conv", device="cuda", median=0.1, p90=0.1, peak=None, reason="a test's")

    with pytest.raises(NumericError, match="control 'one value of output 0 off' was accepted"):
        require_controls(outputs, outputs, tolerance=tolerance, inputs=[], updates={})


def test_controls_leave_what_they_are_given_alone() -> None:
    outputs = [np.ones(3), np.ones(())]
    broken = dict(broken_outputs(outputs, inputs=[np.zeros(3)], updates={0: 0}))

    assert [name for name, arrays in broken.items() if not arrays[0].all()] == [
        "update of output 0 not applied",
        "step dropped",
    ]
    assert all(array.all() for array in outputs)


def test_the_message_names_output_shape_error_bound_and_family() -> None:
    made = computed("linear_train_step", 5)
    got = list(made.want)
    got[1] = got[1] + 1.0

    with pytest.raises(
        NumericError,
        match=r"family 'dot' on 'cpu'.*the p90 error [\d.]+ exceeds 5e-05; the worst is output 1 of shape \(10,\)",
    ):
        made.check("linear_train_step", got, BOUNDS.of("dot", "cpu")).require()


def test_one_value_off_is_seen_by_its_peak_alone() -> None:
    want = [np.ones(100_000)]
    comparison = compare(one_value_off(want, 0, inputs=[], updates={}), want, tolerance=LOOSE)

    assert comparison.p90 < LOOSE.p90
    assert comparison.problems() == (
        "output 0 of shape (100000,) with 0.00316: one value is off by 1, more than the peak of 0.5",
    )


def test_the_error_never_lies_below_the_difference_of_the_norms() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 7, 1000):
        got, want = rng.standard_normal(size), rng.standard_normal(size)
        norms = abs(np.linalg.norm(got) - np.linalg.norm(want)) / np.sqrt(size) / rms(want)

        assert compare([got], [want], tolerance=LOOSE).median >= norms * (1 - 1e-12)


def test_a_small_output_is_measured_by_the_others() -> None:
    want = [np.full(4, 1.0), np.full(4, 1.0), np.full(4, 1e-9)]
    got = [want[0], want[1], np.full(4, 2e-9)]

    assert compare(got, want, tolerance=LOOSE).worst.error == pytest.approx(1e-9 / 1e-2)


def test_the_percentile_is_the_worst_of_nine_outputs() -> None:
    want = [np.ones(4)] * 9
    got = [*want[:-1], want[-1] * 1.3]

    comparison = compare(got, want, tolerance=LOOSE)

    assert [comparison.median, comparison.p90] == pytest.approx([0.0, 0.3])
    assert comparison.worst.index == 8


def test_equal_outputs_of_zero_agree() -> None:
    assert compare([np.zeros(3)], [np.zeros(3)], tolerance=LOOSE).require().p90 == 0.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_must_match(value: float) -> None:
    want = [np.array([1.0, value, 3.0])]

    assert not compare(want, want, tolerance=LOOSE).problems()
    with pytest.raises(
        NumericError, match=r"output 0 of shape \(3,\) has NaN, \+inf, -inf counts \(0, 0, 0\)"
    ):
        compare([np.array([1.0, 2.0, 3.0])], want, tolerance=LOOSE).require()


def test_the_same_number_of_nans_elsewhere_is_no_match() -> None:
    got, want = np.array([np.nan, 2.0, 3.0]), np.array([1.0, np.nan, 3.0])

    with pytest.raises(NumericError, match="the median error inf"):
        compare([got], [want], tolerance=LOOSE).require()


def test_a_parameter_that_stays_infinite_is_no_difference() -> None:
    before, after = np.array([np.inf, 1.0]), np.array([np.inf, 2.0])

    assert not compare([after], [after], tolerance=LOOSE, inputs=[before], updates={0: 0}).problems()


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ([np.ones(2)], "1 outputs, where the reference has 2"),
        ([np.ones(2), np.ones((3, 1))], r"output 1 has shape \(3, 1\), the reference \(3,\)"),
    ],
)
def test_other_outputs_than_the_reference_are_refused(got: Arrays, message: str) -> None:
    with pytest.raises(NumericError, match=message):
        compare(got, [np.ones(2), np.ones(3)], tolerance=LOOSE)


def test_no_outputs_are_no_agreement() -> None:
    with pytest.raises(NumericError, match="0 outputs, where the reference has 0"):
        compare([], [], tolerance=LOOSE)


def test_an_update_of_another_shape_is_refused() -> None:
    with pytest.raises(
        NumericError, match=r"output 0 can not update input 0: their shapes are \(2, 3\) and \(3,\)"
    ):
        compare([np.ones((2, 3))], [np.ones((2, 3))], tolerance=LOOSE, inputs=[np.ones(3)], updates={0: 0})


def test_the_shipped_bounds_lie_within_the_outer_ones() -> None:
    outer = {"dot": (3e-3, 3e-2), "conv": (3e-2, 7e-2), "deep-conv": (0.15, 0.8)}
    outer |= {"batch-norm": (5e-3, 0.2), "layer-norm": (3e-3, 5e-3)}
    outer |= {
        "seeded-dot": outer["dot"],
        "seeded-conv": outer["conv"],
        "seeded-deep-conv": outer["deep-conv"],
    }
    outer |= {"seeded-norm": outer["batch-norm"], "seeded-depthwise": (6e-2, 0.9)}

    assert {entry.family for entry in BOUNDS.entries} == set(outer)
    for entry in BOUNDS.entries:
        assert entry.median <= outer[entry.family][0]
        assert entry.p90 <= outer[entry.family][1]
        assert entry.p90 <= outer[entry.family][1]


def test_families_of_the_nets_have_a_peak_on_every_device_class() -> None:
    for family in set(oracle.FAMILY.values()):
        assert all(BOUNDS.of(family, device).peak for device in ("cpu", "cuda", "cuda-strict"))


def test_an_unknown_family_is_told_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "tolerances.toml"
    path.write_text('[dot.cpu]\nmedian = 1e-5\np90 = 1e-4\nreason = "a test"\n')

    with pytest.raises(UsageError, match="no tolerance for 'conv' on 'cpu'; there are: dot on cpu"):
        load_tolerances(path).of("conv", "cpu")


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tolerances.toml"
    path.write_text("")

    assert load_tolerances(path).sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dot = 3", r"tolerances.toml: \[dot\]: device class: 3 is not a table; write \[family.device\]"),
        ("[dot]\ncpu = 3", r"tolerances.toml: \[dot\]: cpu: 3 is not a table"),
        (
            '[dot.cpu]\nmedian = 0.0\np90 = 1\nreason = "x"',
            r"\[dot.cpu\]: median: 0.0 is not a positive number",
        ),
        ('[dot.cpu]\nmedian = 1\np90 = "1"\nreason = "x"', r"\[dot.cpu\]: p90: '1' is not a positive number"),
        ('[dot.cpu]\nmedian = 1\nreason = "x"', r"\[dot.cpu\]: p90: None is not a positive number"),
        ('[dot.cpu]\nmedian = 1\np90 = nan\nreason = "x"', r"\[dot.cpu\]: p90: nan is not a positive number"),
        ('[dot.cpu]\nmedian = 1\np90 = 1\npeak = true\nreason = "x"', r"peak: True is not a positive number"),
        ("[dot.cpu]\nmedian = 1\np90 = 1", r"\[dot.cpu\]: reason: is missing"),
        ('[dot.cpu]\nmedian = 1\np90 = 1\nreason = "x"\nmax = 1', r"\[dot.cpu\]: max: unknown key"),
    ],
)
def test_a_malformed_file_is_refused_by_table_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tolerances.toml"
    path.write_text(text)

    with pytest.raises(CatalogError, match=message):
        load_tolerances(path)
