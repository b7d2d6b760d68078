"""Fast path: XLA/PJRT, what a step computes. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pytest_cudaboot.errors import NumericError
from pytest_cudaboot.lowerers.base import Array
from pytest_cudaboot.rules.controls import rate_of_zero, require_controls
from pytest_cudaboot.rules.numerics import compare
from pytest_cudaboot.rules.tolerances import load_tolerances
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.nets import Graph, Net

from .conftest import WITHOUT_AUTOTUNING

LookCloser = Callable[..., AbstractContextManager[None]]

SEED = 20
# The libraries' own switch, and no kernel that is not theirs: XLA's generated products would not read it.
FULL_FLOAT32 = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "XLA_FLAGS": f"{WITHOUT_AUTOTUNING} --xla_gpu_enable_triton_gemm=false",
}
RUNS = 10  # steps that one executable repeats


# > The results are checked against [`nets/oracle.py`](nets/oracle.py), which computes the same steps in float64
@pytest.mark.spec("fast.oracle")
def test_the_forward_graph_agrees_with_the_oracle(
    session: Callable[[Path], SessionHandle],
    lowerer: LowererHandle,
    net: Net,
    measure: Callable[..., None],
    look_closer: LookCloser,
) -> None:
    hold_to_the_oracle(session(net.forward.path), net.forward, lowerer, measure, look_closer)


@pytest.mark.spec("fast.oracle")
def test_the_train_step_agrees_with_the_oracle(
    session: Callable[[Path], SessionHandle],
    lowerer: LowererHandle,
    net: Net,
    measure: Callable[..., None],
    look_closer: LookCloser,
) -> None:
    """All that is asked of one step is asked of one executable: to compile it again would cost more than the rest."""
    opened = session(net.step.path)

    want = hold_to_the_oracle(opened, net.step, lowerer, measure, look_closer)
    hold_a_rate_of_zero_apart(opened, net.step, want, lowerer.platform)
    hold_repetition(opened, net.step, lowerer.platform)
    seconds = opened.repeat(net.step.inputs(SEED), RUNS, net.step.updates, -1)["seconds"]
    measure(**{f"{net.name}_step_ms": 1000 * sorted(seconds)[RUNS // 2]})


def hold_to_the_oracle(
    opened: SessionHandle,
    graph: Graph,
    lowerer: LowererHandle,
    measure: Callable[..., None],
    look_closer: LookCloser,
) -> Sequence[Array]:
    """A run against float64, which it returns, and then what is wrong on purpose: to accept that proves nothing."""
    inputs = graph.inputs(SEED)
    got, want = opened.invoke(inputs), graph.oracle(inputs)
    tolerance = load_tolerances().of(graph.family, lowerer.platform)
    compared = compare(got, want, tolerance=tolerance, inputs=inputs, updates=graph.updates)
    measure(**{f"{graph.entry}_median_error": compared.median, f"{graph.entry}_p90_error": compared.p90})
    with look_closer(graph, inputs, [lowerer.name]):
        compared.require()
    require_controls(got, want, tolerance=tolerance, inputs=inputs, updates=graph.updates)
    return want


def hold_a_rate_of_zero_apart(
    opened: SessionHandle, graph: Graph, want: Sequence[Array], platform: str
) -> None:
    """A step that learns nothing does not pass for one that does."""
    assert graph.rate is not None
    inputs = graph.inputs(SEED)
    frozen = opened.invoke(rate_of_zero(inputs, graph.rate))
    tolerance = load_tolerances().of(graph.family, platform)
    compared = compare(frozen, want, tolerance=tolerance, inputs=inputs, updates=graph.updates)
    with pytest.raises(NumericError):
        compared.require()


def hold_repetition(opened: SessionHandle, graph: Graph, platform: str) -> None:
    """One executable repeats itself: to the bit, or within rounding.

    A card sums a convolution's gradient up in no fixed order; from the same inputs that is rounding and no more.
    """
    inputs = graph.inputs(SEED)
    first, again = opened.invoke(inputs), opened.invoke(inputs)
    if graph.family == "dot" or platform == "cpu":
        assert [array.tobytes() for array in again] == [array.tobytes() for array in first]
    else:
        rounding = load_tolerances().of(graph.family, f"{platform}-strict")
        compare(again, first, tolerance=rounding, inputs=inputs, updates=graph.updates).require()


@pytest.mark.spec("fast.oracle-strict")
def test_without_tf32_and_autotuning_it_is_as_close_as_a_cpu(
    open_with: Callable[..., LowererHandle], net: Net, measure: Callable[..., None]
) -> None:
    lowerer = open_with(**FULL_FLOAT32)
    for graph in (net.forward, net.step):
        inputs = graph.inputs(SEED)
        tolerance = load_tolerances().of(graph.family, f"{lowerer.platform}-strict")
        session = lowerer.open_session(graph.path)

        compared = compare(
            session.invoke(inputs),
            graph.oracle(inputs),
            tolerance=tolerance,
            inputs=inputs,
            updates=graph.updates,
        )

        measure(**{f"{graph.entry}_median_error": compared.median, f"{graph.entry}_p90_error": compared.p90})
        compared.require()
