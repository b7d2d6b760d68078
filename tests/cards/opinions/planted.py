"""A fault that is planted in one operation of `cifar8`'s train step is found there; without it, nothing is.

It runs on a card, or without one on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.numerics import compare
from pytest_cudaboot.rules.tolerances import load_tolerances
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.first_bad import Looker
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.nets import Graph, load_net

SEED = 5
NET = "cifar8"
CONVOLUTION = "%15 = stablehlo.convolution(%14, %W2) dim_numbers = [b, f, 0, 1]x[o, i, {}]"
RIGHT, WRONG = (CONVOLUTION.format(axes) for axes in ("0, 1", "1, 0"))
LookCloser = Callable[[Graph, Sequence[Any], Sequence[str]], AbstractContextManager[None]]


class Planted:
    """A lowerer that transposes the kernel of one convolution, as a wrong pass of a compiler's would.

    :param folder: private, for the texts that it really loads.
    """

    def __init__(self, handle: LowererHandle, folder: Path) -> None:
        self.name, self.platform, self.facts = handle.name, handle.platform, handle.facts
        self._handle, self._folder = handle, folder

    def open_session(self, path: Path, source: Path | None = None) -> SessionHandle:
        wrong = self._folder / path.name
        wrong.write_text(path.read_text().replace(RIGHT, WRONG))
        return self._handle.open_session(wrong, source)


@pytest.fixture
def plants() -> list[bool]:
    """Whether the lowerer has its fault: where the test says so."""
    return []


@pytest.fixture
def open_lowerer(
    open_lowerer: Callable[[str], LowererHandle], plants: list[bool], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], LowererHandle | Planted]:
    """The plugin's own, with the fault."""

    def open_named(name: str) -> LowererHandle | Planted:
        handle = open_lowerer(name)
        return Planted(handle, tmp_path_factory.mktemp("planted")) if plants else handle

    return open_named


@pytest.mark.spec("opinion.planted")
def test_a_planted_fault(
    open_lowerer: Callable[[str], LowererHandle | Planted],
    project: Project,
    plants: list[bool],
    look_closer: LookCloser,
) -> None:
    graph = load_net(project, NET).step
    assert RIGHT in graph.path.read_text()
    plants.append(True)
    lowerer, inputs = open_lowerer("xla"), graph.inputs(SEED)

    made = lowerer.open_session(graph.path).invoke(inputs)

    tolerance = load_tolerances().of(graph.family, lowerer.platform)
    compared = compare(made, graph.oracle(inputs), tolerance=tolerance, inputs=inputs, updates=graph.updates)
    with look_closer(graph, inputs, [lowerer.name]):
        compared.require()


@pytest.mark.spec("opinion.sound")
def test_without_a_fault(
    lowerer: LowererHandle, project: Project, evidence: Evidence, tmp_path: Path
) -> None:
    graph = load_net(project, NET).step
    looker = Looker(lambda handle, path: handle.open_session(path), tmp_path / "cuts")

    found = looker.look(lowerer, graph.path, graph.inputs(SEED))

    evidence.note(found=found.words)
    assert found.bad is None, found.words
    assert found.cut_short is None
    evidence.measure(operations_checked=found.checked)
