"""Operations that slide a window over an array, in float64: convolutions, pools and their way back. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pytest_cudaboot.errors import NoReferenceError
from pytest_cudaboot.rules.stablehlo_words import layout, number, numbers, pairs, reducer, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_cudaboot.rules.stablehlo_text import Operation
    from pytest_cudaboot.rules.stablehlo_words import Values

BLOCK = 2**23  # values that are unrolled at once
REDUCERS: dict[str, Any] = {
    "add": np.add,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
}
REDUCERS |= {"and": np.logical_and, "or": np.logical_or}
# Chooses a place of a window, by the comparison that keeps the earlier of two.
_SELECTS = {"GE": np.argmax, "GT": np.argmax, "LE": np.argmin, "LT": np.argmin}


def convolution(op: Operation, operands: Sequence[Values]) -> Values:
    """In any layout, with strides, padding, dilation and groups."""
    image_at, kernel_at, result_at = layout(op)
    spatial = [word for word in result_at if word.isdigit()]
    image = _ordered(operands[0], image_at, ["b", "f", *spatial])
    kernel = _ordered(operands[1], kernel_at, ["o", "i", *spatial])
    count = len(spatial)
    if "window_reversal" in op.text or "reverse = [true" in op.text or "reverse = [1" in op.text:
        raise NoReferenceError(f"line {op.line}: a convolution with its window reversed")
    image = _dilated(image, spread(op, count, 1, "lhs_dilate", "lhs_dilation"))
    kernel = _dilated(kernel, spread(op, count, 1, "rhs_dilate", "rhs_dilation"))
    padded = _padded(image, [(0, 0), (0, 0), *pairs(op, count, "pad", "padding")], 0.0)
    strides = spread(op, count, 1, "stride", "window_strides")
    made = _grouped(op, padded, kernel, strides)
    return _ordered(made, ["b", "f", *spatial], result_at)


def _grouped(op: Operation, image: Values, kernel: Values, strides: Sequence[int]) -> Values:
    features, batches = number(op, "feature_group_count", 1), number(op, "batch_group_count", 1)
    images = np.split(image, features, axis=1) if features > 1 else np.split(image, batches, axis=0)
    kernels = np.split(kernel, max(features, batches), axis=0)
    made = [_correlate(one, by, strides) for one, by in zip(images, kernels, strict=True)]
    return np.concatenate(made, axis=1)


def _correlate(image: Values, kernel: Values, strides: Sequence[int]) -> Values:
    """Batch and channels first; the window's products are summed up by a matrix product, some images at a time."""
    count = len(strides)
    axes = tuple(range(2, 2 + count))
    view = sliding_window_view(image, kernel.shape[2:], axis=axes)
    view = view[(slice(None), slice(None), *(slice(None, None, stride) for stride in strides))]
    step = max(1, BLOCK * len(view) // max(1, view.size))
    summed = [1, *range(2 + count, 2 + 2 * count)]
    over = [1, *range(2, 2 + count)]
    blocks = [np.tensordot(view[at : at + step], kernel, (summed, over)) for at in range(0, len(view), step)]
    return np.moveaxis(np.concatenate(blocks), -1, 1)


def reduce_window(op: Operation, operands: Sequence[Values]) -> Values:
    array, start = operands
    view = _windows(op, array, start.item())
    made = REDUCERS[_known(op)].reduce(view, axis=tuple(range(array.ndim, 2 * array.ndim)))
    return np.asarray(REDUCERS[_known(op)](made, start))


def select_and_scatter(op: Operation, operands: Sequence[Values]) -> Values:
    """Each window's chosen place is given the window's value of the source; of equals the first is chosen."""
    array, source, start = operands
    compared = [word for word in _SELECTS if f" {word}," in op.text or f"direction {word}>" in op.text]
    if len(compared) != 1 or "stablehlo.add" not in op.text:
        raise NoReferenceError(f"line {op.line}: a select_and_scatter that is no pool's way back")
    worst = -np.inf if compared[0] in ("GE", "GT") else np.inf
    padding = pairs(op, array.ndim, "padding")
    view = _windows(op, array, worst)
    flat = view.reshape(*view.shape[: array.ndim], -1)
    chosen = np.unravel_index(_SELECTS[compared[0]](flat, axis=-1), view.shape[array.ndim :])
    strides = spread(op, array.ndim, 1, "window_strides")
    origin = np.indices(source.shape)
    places = tuple(
        origin[axis] * strides[axis] + chosen[axis] - padding[axis][0] for axis in range(array.ndim)
    )
    made = np.full(array.shape, start.item(), np.float64)
    np.add.at(made, places, source)
    return made


def _windows(op: Operation, array: Values, filling: Any) -> Values:
    sizes = numbers(op, "window_dimensions")
    if sizes is None or numbers(op, "window_dilations") or numbers(op, "base_dilations"):
        raise NoReferenceError(f"line {op.line}: a window without its size, or with gaps")
    padded = _padded(array, pairs(op, array.ndim, "padding"), filling)
    strides = spread(op, array.ndim, 1, "window_strides")
    return sliding_window_view(padded, sizes)[tuple(slice(None, None, stride) for stride in strides)]


def _known(op: Operation) -> str:
    by = reducer(op)
    if by not in REDUCERS:
        raise NoReferenceError(f"line {op.line}: a reduction by {by}")
    return by


def _ordered(array: Values, have: Sequence[str], want: Sequence[str]) -> Values:
    return np.transpose(array, [have.index(word) for word in want])


def _padded(array: Values, padding: Sequence[tuple[int, int]], filling: Any) -> Values:
    """With negative padding values are cut off."""
    grown = [(max(low, 0), max(high, 0)) for low, high in padding]
    made = np.pad(array, grown, constant_values=filling) if any(map(any, grown)) else array
    return made[tuple(slice(max(-low, 0), min(high, 0) or None) for low, high in padding)]


def _dilated(array: Values, factors: Sequence[int]) -> Values:
    if math.prod(factors) == 1:
        return array
    sizes = [(size - 1) * factor + 1 for size, factor in zip(array.shape[2:], factors, strict=True)]
    made = np.zeros((*array.shape[:2], *sizes), array.dtype)
    made[(slice(None), slice(None), *(slice(None, None, factor) for factor in factors))] = array
    return made
