"""Fast path: XLA/PJRT, the train verbs of the ABI. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.numerics import compare
from pytest_cudaboot.rules.tolerances import load_tolerances
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle

GRAPH = suite_root() / "fixtures" / "verbs" / "squares.mlir"
LABELS = [0, 1, 2, 2, 1, 0]
RATE = 0.125


# > the shim `dlopen`s the plugin and talks to it through the
# > PJRT C API
@pytest.mark.spec("fast.train-verb")
def test_one_step_by_the_verb_is_the_graphs(
    session: Callable[[Path], SessionHandle], lowerer: LowererHandle, measure: Callable[..., None]
) -> None:
    rng = np.random.default_rng(17)
    w, b, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 3), (3,), (6, 4)))

    made = session(GRAPH).call(
        "train_generic", function="squares", parameters=[w, b], x=x, y=LABELS, rate=RATE
    )

    wanted = stepped(*(array.astype(np.float64) for array in (w, b, x)))
    compared = compare(
        made,
        wanted,
        tolerance=load_tolerances().of("dot", lowerer.platform),
        inputs=[w, b],
        updates={0: 0, 1: 1},
    )
    measure(median_error=compared.median)
    compared.require()


def stepped(w: np.ndarray, b: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """The same step in float64."""
    off = x @ w + b - np.array(LABELS, float)[:, None]
    return [w - RATE * x.T @ off, b - RATE * off.sum(axis=0), np.square(off).sum()]
