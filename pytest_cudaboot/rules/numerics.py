"""Compare a net's outputs with a reference, within a tolerance that is data. Pure: arrays in, facts out.

What is compared is the *movement*: for an output that updates an input, out minus in. A parameter hardly moves in one
step, so the outputs as such would agree even if no step were made.

The error of an output is

    rms(got - want) / max(rms(want), 1/100 of the median rms(want) over all outputs)

over every element. A check of sampled elements would need the difference of the norms beside it, to see what was not
sampled. Two remarks on that term. As a difference of L2 norms it has not the dimension of an rms: the same relative
error would weigh sqrt(n) times as much in a matrix of n values as in a scalar, and TF32, which cuts rather than rounds
and so shortens everything a little, puts it at 0.09 for 100,352 values whose error is 6e-4. Divided by sqrt(n) it is
|rms(got) - rms(want)|, and this never exceeds rms(got - want) over the same elements. So with all of them compared it
can add nothing, and is left out.

The median and the 90th percentile of the errors are bounded, and where the tolerance has one, the `peak`: the largest
single difference in the same unit. An rms over 100,000 values does not see one that is off; the peak does.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cudaboot.errors import NumericError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_cudaboot.rules.tolerances import Tolerance

    Array = NDArray[np.floating[Any]]
    Arrays = Sequence[Array]
    Float64 = NDArray[np.float64]

SMALLEST_SHARE = 1e-2
PERCENTILE = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputError:
    """How far one output is off.

    :param error: the root mean square of the difference, in units of the reference.
    :param peak: the largest single difference, in the same unit.
    :param moved: whether the reference changes the input that this output updates; true where it updates none.
    :param non_finite: how many values are NaN, +inf and -inf; `non_finite_wanted` in the reference.
    """

    index: int
    shape: tuple[int, ...]
    error: float
    peak: float
    moved: bool
    non_finite: tuple[int, int, int]
    non_finite_wanted: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The errors of a net's outputs, in their order, beside their bounds."""

    tolerance: Tolerance
    outputs: tuple[OutputError, ...]
    median: float
    p90: float

    @property
    def worst(self) -> OutputError:
        return max(self.outputs, key=lambda output: (output.error, output.peak))

    def problems(self) -> tuple[str, ...]:
        """What speaks against agreement, one sentence each; empty if the outputs agree."""
        return (*_vacuous(self.outputs), *_non_finite(self.outputs), *self._beyond())

    def _beyond(self) -> Iterator[str]:
        bound = self.tolerance  # compared by `not <=`, so that a NaN lies beyond
        for name, value, limit in (("median", self.median, bound.median), ("p90", self.p90, bound.p90)):
            if not value <= limit:
                yield f"the {name} error {value:.3g} exceeds {limit:g}; the worst is {_named(self.worst)}"
        for output in self.outputs:
            if bound.peak is not None and not output.peak <= bound.peak:
                yield f"{_named(output)}: one value is off by {output.peak:.3g}, more than the peak of {bound.peak:g}"

    def require(self) -> Comparison:
        """The comparison itself, if the outputs agree.

        :raises NumericError: they do not; the message names the outputs, their errors and the bounds.
        """
        problems = self.problems()
        if problems:
            where = f"family {self.tolerance.family!r} on {self.tolerance.device!r}"
            raise NumericError(f"outputs differ ({where}): {'; '.join(problems)}")
        return self


def compare(
    got: Arrays,
    want: Arrays,
    *,
    tolerance: Tolerance,
    inputs: Arrays = (),
    updates: Mapping[int, int] | None = None,
) -> Comparison:
    """Compare a net's outputs with a reference's.

    :param got: what ran; `want` is what it should be (an oracle's float64, or another lowerer's outputs).
    :param inputs: what both were given; needed where `updates` names some.
    :param updates: output index -> index of the input that it updates.
    :raises NumericError: the two have not the same outputs (number, shapes), so nothing can be compared.
    """
    _same_outputs(got, want)
    before = _before(want, inputs, updates or {})
    moved = [(movement(g, b), movement(w, b)) for g, w, b in zip(got, want, before, strict=True)]
    sizes = [rms(finite(w)) for _, w in moved]
    floor = SMALLEST_SHARE * statistics.median(sizes)
    outputs = tuple(
        _output_error(index, g, w, scale=max(size, floor), moved=before[index] is None or bool(np.any(w)))
        for index, ((g, w), size) in enumerate(zip(moved, sizes, strict=True))
    )
    errors = sorted(output.error for output in outputs)
    # Nearest rank: among nine outputs or fewer this is the worst one, where interpolation would dilute it.
    p90 = errors[math.ceil(PERCENTILE * len(errors)) - 1]
    return Comparison(tolerance=tolerance, outputs=outputs, median=statistics.median(errors), p90=p90)


def _same_outputs(got: Arrays, want: Arrays) -> None:
    if len(got) != len(want) or not want:
        raise NumericError(f"{len(got)} outputs, where the reference has {len(want)}")
    for index, (g, w) in enumerate(zip(got, want, strict=True)):
        if np.shape(g) != np.shape(w):
            raise NumericError(f"output {index} has shape {np.shape(g)!r}, the reference {np.shape(w)!r}")


def _before(want: Arrays, inputs: Arrays, updates: Mapping[int, int]) -> list[Array | None]:
    """What each output updates, or None."""
    before = [inputs[updates[index]] if index in updates else None for index in range(len(want))]
    for index, array in enumerate(before):
        if array is not None and np.shape(array) != np.shape(want[index]):
            shapes = f"{np.shape(want[index])!r} and {np.shape(array)!r}"
            raise NumericError(
                f"output {index} can not update input {updates[index]}: their shapes are {shapes}"
            )
    return before


def movement(array: Array, before: Array | None) -> Float64:
    after = np.asarray(array, dtype=np.float64)
    if before is None:
        return after
    with np.errstate(invalid="ignore"):  # infinity that stays infinity moves by NaN, on both sides
        return np.asarray(after - np.asarray(before, dtype=np.float64))


def finite(array: Float64) -> Float64:
    return array[np.isfinite(array)]


def rms(array: Float64) -> float:
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0


def _output_error(index: int, got: Float64, want: Float64, *, scale: float, moved: bool) -> OutputError:
    """Equal values differ by nothing, NaN and infinities too; a finite value and another kind differ without bound."""
    both = np.isfinite(got) & np.isfinite(want)
    equal = (got == want) | (np.isnan(got) & np.isnan(want))
    difference = np.where(equal, 0.0, np.inf)
    np.subtract(got, want, out=difference, where=both)
    return OutputError(
        index=index,
        shape=got.shape,
        error=_share(rms(difference), scale),
        peak=_share(float(np.max(np.abs(difference), initial=0.0)), scale),
        moved=moved,
        non_finite=_kinds(got),
        non_finite_wanted=_kinds(want),
    )


def _share(size: float, scale: float) -> float:
    if size == 0.0:
        return 0.0
    return size / scale if scale > 0.0 else math.inf


def _kinds(array: Float64) -> tuple[int, int, int]:
    return int(np.isnan(array).sum()), int(np.isposinf(array).sum()), int(np.isneginf(array).sum())


def _named(output: OutputError) -> str:
    return f"output {output.index} of shape {output.shape!r} with {output.error:.3g}"


def _vacuous(outputs: Sequence[OutputError]) -> Iterator[str]:
    for output in outputs:
        if not output.moved:
            yield f"the reference does not move what output {output.index} updates, so nothing is compared"


def _non_finite(outputs: Sequence[OutputError]) -> Iterator[str]:
    for output in outputs:
        if output.non_finite != output.non_finite_wanted:
            counts = f"{output.non_finite!r}, the reference {output.non_finite_wanted!r}"
            yield f"output {output.index} of shape {output.shape!r} has NaN, +inf, -inf counts {counts}"
