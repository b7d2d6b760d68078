"""Kernels that break a card's context or never end, between specs that must not notice. It needs a card, or a stand-in.

pytest --gpus all tests/cards/under_fire.py

Its verdict is `reject`, and right so: what has to be seen is which cells are broken, by what cause, and that the others
hold. Each test that expects an end in words checks nothing itself; the file beside it says what the cells must be.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_cudaboot.run.handles import SessionHandle

Kernel = Callable[[str], SessionHandle]


def works(kernel: Kernel) -> None:
    assert kernel("fine").invoke([])[0][0] == 42


@pytest.mark.spec("fire.before")
def test_before(kernel: Kernel) -> None:
    works(kernel)


@pytest.mark.spec("fire.illegal")
def test_illegal_address_is_seen_by_the_test(kernel: Kernel) -> None:
    kernel("illegal_address").invoke([])


@pytest.mark.spec("fire.after-illegal")
def test_after_an_illegal_address(kernel: Kernel) -> None:
    works(kernel)


@pytest.mark.spec("fire.unseen")
def test_illegal_address_is_not_waited_for(kernel: Kernel) -> None:
    """The test itself passes: nobody has looked."""
    kernel("illegal_address").call("launch")


@pytest.mark.spec("fire.after-unseen")
def test_after_one_that_nobody_saw(kernel: Kernel) -> None:
    works(kernel)


@pytest.mark.spec("fire.endless")
def test_endless_kernel(kernel: Kernel) -> None:
    kernel("endless").invoke([])


@pytest.mark.spec("fire.after-endless")
def test_after_an_endless_kernel(kernel: Kernel) -> None:
    works(kernel)


@pytest.mark.spec("fire.canary", role="canary")
def test_a_documented_illegal_address(kernel: Kernel, canary: Callable[[str], object]) -> None:
    with canary(r"cuMemcpyDtoH_v2 failed with 700"):  # type: ignore[attr-defined]
        kernel("illegal_address").invoke([])


@pytest.mark.spec("fire.canary")
def test_after_a_documented_one(kernel: Kernel) -> None:
    works(kernel)
