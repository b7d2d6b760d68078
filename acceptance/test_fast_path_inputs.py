"""Fast path: XLA/PJRT, what a graph is given. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.project import Project, suite_root
from pytest_cudaboot.run.handles import SessionHandle
from pytest_cudaboot.run.nets import Net

from .nets import plainest_net

SEED = 23
GUARD = 1
# Of each pair of patterns below, the first is the shim's own words, the second those of IREE's runtime.


@pytest.fixture
def plainest(project: Project) -> Net:
    """One net is enough where a guard is the point; `fast.oracle` gives every net its inputs."""
    return plainest_net(project)


# > they are given what one file of `nets/` says, and refuse an input whose number,
# > shape or element type is not the one in its signature.
@pytest.mark.spec("fast.input-shapes")
def test_inputs_of_the_right_shape_are_taken(session: Callable[[Path], SessionHandle], plainest: Net) -> None:
    opened = session(plainest.step.path)

    made = opened.invoke(plainest.step.inputs(SEED))

    assert [list(array.shape) for array in made] == [
        output["shape"] for output in opened.signature["outputs"]
    ]


@pytest.mark.spec("fast.input-shapes", role="canary")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            lambda arrays: arrays[:-1],
            r"takes \d+ inputs, the caller gives \d+|expected \d+ arguments but passed \d+",
            id="one too few",
        ),
        pytest.param(
            lambda arrays: [*arrays, arrays[0]],
            r"takes \d+ inputs, the caller gives|expected \d+ arguments but passed",
            id="one too many",
        ),
        pytest.param(
            lambda arrays: [arrays[0], arrays[1].T.copy(), *arrays[2:]],
            r"input 1 of @\w+: the module wants tensor<784x\d+xf32>, the caller gives tensor<\d+x784xf32>"
            r"|input1 shape dimension 0 mismatch; expected 784 but have \d+",
            id="transposed: as many bytes, another shape",
        ),
        pytest.param(
            lambda arrays: [arrays[0], arrays[1].reshape(-1), *arrays[2:]],
            r"input 1 of @\w+: the module wants tensor<784x\d+xf32>, the caller gives tensor<\d+xf32>"
            r"|input1 shape rank mismatch; expected 2 but have 1",
            id="flattened: as many bytes, another rank",
        ),
        pytest.param(
            lambda arrays: [arrays[0][:-1], *arrays[1:]],
            r"input 0 of @\w+: the module wants tensor<128x784xf32>, the caller gives tensor<127x784xf32>"
            r"|input0 shape dimension 0 mismatch; expected 128 but have 127",
            id="one row too few",
        ),
    ],
)
def test_other_inputs_are_refused_and_the_session_lives_on(
    session: Callable[[Path], SessionHandle],
    plainest: Net,
    change: Callable[[list[np.ndarray]], list[np.ndarray]],
    words: str,
) -> None:
    opened, inputs = session(plainest.step.path), plainest.step.inputs(SEED)

    with pytest.raises(ShimError, match=words) as refusal:
        opened.invoke(change(inputs))

    assert refusal.value.code == GUARD
    assert len(opened.invoke(inputs)) == len(opened.signature["outputs"])


@pytest.mark.spec("fast.input-shapes", role="canary")
def test_too_little_room_for_the_outputs_is_refused(
    session: Callable[[Path], SessionHandle], plainest: Net
) -> None:
    opened, inputs = session(plainest.step.path), plainest.step.inputs(SEED)
    shapes = [output["shape"] for output in opened.signature["outputs"]]

    with pytest.raises(
        ShimError, match=rf"returns {len(shapes)} outputs, the caller supplied {len(shapes) - 1}"
    ):
        opened.invoke(inputs, outputs=shapes[:-1])
    with pytest.raises(ShimError, match="output 0 size mismatch"):
        opened.invoke(inputs, outputs=[[1], *shapes[1:]])


@pytest.mark.spec("fast.input-shapes", role="canary")
def test_another_function_is_refused(session: Callable[[Path], SessionHandle], plainest: Net) -> None:
    opened = session(plainest.forward.path)

    with pytest.raises(
        ShimError, match=rf"holds @{plainest.forward.entry}, the caller asks for m\.no_such_entry"
    ):
        opened.invoke(plainest.forward.inputs(SEED), function="m.no_such_entry")


@pytest.mark.spec("fast.input-shapes", role="canary")
def test_float_bits_are_not_taken_for_integers(session: Callable[[Path], SessionHandle]) -> None:
    graph = suite_root() / "fixtures" / "broken" / "graphs" / "integers.mlir"

    with pytest.raises(ShimError, match=r"input 0 of @integers: the module wants tensor<4xi32>"):
        session(graph).invoke([np.zeros(4, np.float32)])
