"""Outputs that are wrong on purpose. A comparison that accepts one of them proves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_cudaboot.errors import NumericError
from pytest_cudaboot.rules.numerics import compare, finite, movement, rms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_cudaboot.rules.numerics import Array, Arrays
    from pytest_cudaboot.rules.tolerances import Tolerance


def one_value_off(got: Arrays, index: int, *, inputs: Arrays, updates: Mapping[int, int]) -> list[Array]:
    """The outputs with one value of output `index` off by that output's typical movement."""
    broken: list[Array] = [np.array(array, dtype=np.float64) for array in got]
    before = inputs[updates[index]] if index in updates else None
    broken[index].flat[broken[index].size // 2] += rms(finite(movement(got[index], before)))
    return broken


def update_not_applied(got: Arrays, index: int, *, inputs: Arrays, updates: Mapping[int, int]) -> list[Array]:
    """The outputs, but the input that output `index` updates is handed back as it was."""
    return [inputs[updates[index]] if here == index else array for here, array in enumerate(got)]


def step_dropped(got: Arrays, *, inputs: Arrays, updates: Mapping[int, int]) -> list[Array]:
    """The outputs, but every input that is updated is handed back as it was."""
    return [inputs[updates[index]] if index in updates else array for index, array in enumerate(got)]


def rate_of_zero(inputs: Arrays, rate: int) -> list[Array]:
    """The inputs with a learning rate (input `rate`) of zero: run with these, the step must be refused."""
    return [np.zeros_like(array) if index == rate else array for index, array in enumerate(inputs)]


def broken_outputs(
    got: Arrays, *, inputs: Arrays, updates: Mapping[int, int]
) -> Iterator[tuple[str, list[Array]]]:
    """Every control that can be made of outputs, with its name."""
    for index in range(len(got)):
        yield f"one value of output {index} off", one_value_off(got, index, inputs=inputs, updates=updates)
    for index in updates:
        name = f"update of output {index} not applied"
        yield name, update_not_applied(got, index, inputs=inputs, updates=updates)
    if updates:
        yield "step dropped", step_dropped(got, inputs=inputs, updates=updates)


def require_controls(
    got: Arrays, want: Arrays, *, tolerance: Tolerance, inputs: Arrays, updates: Mapping[int, int]
) -> tuple[str, ...]:
    """The names of the controls, once each has been refused.

    :raises NumericError: one was accepted.
    """
    names = []
    for name, broken in broken_outputs(got, inputs=inputs, updates=updates):
        if not compare(broken, want, tolerance=tolerance, inputs=inputs, updates=updates).problems():
            raise NumericError(f"control {name!r} was accepted: the comparison proves nothing")
        names.append(name)
    return tuple(names)
