"""Kernels that fail wherever they run, for a second opinion. It needs a card, or a stand-in.

Its verdict is `reject`, and right so: `python -m benchmarks.second_opinions` runs it and says whether the right ones
are to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_cudaboot.errors import NumericError
from pytest_cudaboot.run.handles import SessionHandle

Kernel = Callable[[str], SessionHandle]


def require(kernel: Kernel, wanted: float) -> None:
    made = float(kernel("fine").invoke([])[0][0])
    if made != wanted:
        raise NumericError(f"{made} is not {wanted}")


@pytest.mark.spec("opinion.fine")
def test_a_kernel_runs(kernel: Kernel) -> None:
    require(kernel, 42)


@pytest.mark.spec("opinion.illegal")
def test_an_illegal_address_on_any_card(kernel: Kernel) -> None:
    kernel("illegal_address").invoke([])


@pytest.mark.spec("opinion.bound")
def test_an_illegal_address_on_each_card(kernel: Kernel) -> None:
    kernel("illegal_address").invoke([])


@pytest.mark.spec("opinion.numeric")
def test_a_wrong_number(kernel: Kernel) -> None:
    require(kernel, 43)


@pytest.mark.spec("opinion.together")
def test_a_wrong_number_of_two_cards(kernel: Kernel, gpus: tuple[Any, ...]) -> None:
    assert len(gpus) == 2
    require(kernel, 43)


@pytest.mark.spec("opinion.after")
def test_what_comes_next(kernel: Kernel) -> None:
    require(kernel, 42)
