"""Inputs for a graph of which nothing is known but its text: seeded, small, and such that the outputs can be compared.

All are positive, since some may be second moments that a root is taken of. A tensor's values shrink with the number of
terms that a sum over it has, so that what passes through many layers neither grows without bound nor saturates.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cudaboot.errors import NumericError
from pytest_cudaboot.rules.numerics import compare, movement, rms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_cudaboot.rules.numerics import Comparison
    from pytest_cudaboot.rules.signature import Signature
    from pytest_cudaboot.rules.tolerances import Tolerance

    Array = NDArray[np.floating[Any]]

DEEP = 5  # convolutions, from which on a net is a deep stack
FAR = 1e-3  # of what was there before: a movement that float32's rounding does not blur
SCALARS = (0.5, 1.0)  # a rate, a step's number: whatever a rank of zero means, it is no zero


def seeded_inputs(signature: Signature, seed: int) -> list[Array]:
    """Inputs in the graph's order; the first is taken for the data, and keeps its size."""
    rng = np.random.default_rng(seed)
    return [_values(rng, tensor.shape, first=not index) for index, tensor in enumerate(signature.inputs)]


def _values(rng: np.random.Generator, shape: tuple[int, ...], *, first: bool) -> Array:
    if not shape:
        return np.asarray(rng.uniform(*SCALARS), np.float32)
    size = math.prod(shape)
    terms = 1 if first or len(shape) == 1 or not size else max(size // shape[0], size // shape[-1])
    return (np.abs(rng.standard_normal(shape)) / terms).astype(np.float32)


def updates_of(signature: Signature) -> dict[int, int]:
    """Output to the input that it updates: a train step returns its parameters first, in the order of its inputs."""
    pairs = zip(signature.outputs, signature.inputs[1:], strict=False)
    updates: dict[int, int] = {}
    for index, (made, given) in enumerate(pairs):
        if made.shape != given.shape or not made.shape:  # a loss beside a rate
            break
        updates[index] = index + 1
    return updates


def family_of(text: str) -> str:
    """The tolerance's family for a graph's text, by its hardest operation."""
    groups = (int(count) for count in re.findall(r"feature_group_count\s*=\s*(\d+)", text))
    convolutions = len(re.findall(r"stablehlo\.convolution\b", text))
    if any(count > 1 for count in groups):
        return "seeded-depthwise"
    if convolutions:
        return "seeded-deep-conv" if convolutions > DEEP else "seeded-conv"
    return "seeded-norm" if re.search(r"stablehlo\.(rsqrt|sqrt)\b", text) else "seeded-dot"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A graph's outputs against a reference's.

    :param moved: how many outputs are judged by what they move, rather than as they are.
    """

    comparison: Comparison
    moved: int

    def require(self) -> Judged:
        """Itself, if the outputs agree.

        :raises NumericError: they do not.
        """
        self.comparison.require()
        return self


def judge(
    got: Sequence[Array],
    want: Sequence[Array],
    *,
    signature: Signature,
    inputs: Sequence[Array],
    tolerance: Tolerance,
) -> Judged:
    """Compare outputs. Of an output that updates an input it is the movement that counts, where it is large enough.

    :raises NumericError: no output of the reference says anything: all are zero, or not finite.
    """
    if not any(np.any(array[np.isfinite(array)]) for array in want):
        raise NumericError("the reference has no finite value other than 0, so nothing is compared")
    told = {
        output: into
        for output, into in updates_of(signature).items()
        if rms(movement(want[output], inputs[into])) > FAR * rms(np.asarray(inputs[into], np.float64))
    }
    comparison = compare(got, want, tolerance=tolerance, inputs=inputs, updates=told)
    return Judged(comparison=comparison, moved=len(told))
