"""What a search for the first bad operation finds, and how far a value is off. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_cudaboot.model import Json
    from pytest_cudaboot.rules.stablehlo_cut import Cut
    from pytest_cudaboot.rules.stablehlo_text import Operation
    from pytest_cudaboot.rules.stablehlo_words import Values

    Float32 = NDArray[np.float32]

# Below this share of the typical size, what a value's rounding is counted in is no smaller.
SMALLEST, TINY = 1e-4, 1e-30


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstBad:
    """The first operation that is off, and the smallest cut seen to show it.

    :param value: of the whole, that is off; among the cut's outputs it is the one at `output`.
    :param error: the largest of one value, in the size in which rounding is counted; `tolerance` bounds it.
    :param alone: whether the cut is that operation and nothing else but constants.
    :param reference: what said what is right: `float64`, or another lowerer by its name.
    """

    operation: Operation
    lowerer: str
    value: str
    error: float
    tolerance: float
    alone: bool
    cut: Cut
    output: int
    inputs: tuple[Float32, ...]
    expected: Values
    seen: Float32
    reference: str

    def to_json(self) -> Json:
        """What goes into the cell's evidence."""
        return {
            "op": self.operation.name,
            "value": self.value,
            "line": self.operation.line,
            "shape": list(self.seen.shape),
            "lowerer": self.lowerer,
            "error": self.error,
            "tolerance": self.tolerance,
            "alone": self.alone,
            "operations": sum(not op.constant for op in self.cut.operations),
            "reference": self.reference,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A cut that was run: what it was given, and what it made."""

    cut: Cut
    inputs: tuple[Float32, ...]
    outputs: tuple[Float32, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What came of it.

    :param bad: None where every operation is within its tolerance.
    :param checked: how many operations were held against a reference.
    :param without: operations that have none, by name.
    :param cut_short: why it did not come to its end, or None.
    """

    bad: FirstBad | None
    checked: int
    without: tuple[str, ...]
    cut_short: str | None = None

    @property
    def words(self) -> str:
        """In one sentence, for a report."""
        told = f"; {len(set(self.without))} kinds without a reference: {', '.join(sorted(set(self.without)))}"
        without = told if self.without else ""
        if self.bad is None:
            ended = f"; {self.cut_short}" if self.cut_short else ""
            return f"none of {self.checked} operations is off by itself{without}{ended}"
        where = f"{self.bad.operation.name} at line {self.bad.operation.line} ({self.bad.value})"
        how = "alone" if self.bad.alone else f"in {self.bad.to_json()['operations']} operations together"
        return f"{self.bad.lowerer} is off first in {where}, {how}{without}"


def largest_error(seen: Values, wanted: Values, scale: Values) -> float:
    """The largest difference of one value, each in its own size; equal ones differ by nothing, NaN and infinities too."""
    got, want = np.asarray(seen, np.float64), np.asarray(wanted, np.float64)
    if not want.size:
        return 0.0
    with np.errstate(all="ignore"):
        stored = want.astype(np.float32).astype(np.float64)  # what float32 can not hold is infinite there
        equal = (got == stored) | (np.isnan(got) & np.isnan(stored))
        size = np.where(np.isfinite(scale), scale, 0.0)
        floor = max(SMALLEST * float(np.sqrt(np.mean(np.square(size)))), TINY)
        apart = np.abs(got - want) / np.maximum(size, floor)
    apart = np.where(equal, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return float(apart.max())


def far_off(seen: Values, wanted: Values) -> float:
    """The largest difference in units of the typical value."""
    finite = np.asarray(wanted, np.float64)[np.isfinite(wanted)]
    typical = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    return largest_error(seen, wanted, np.full(np.shape(wanted), max(typical, TINY)))
