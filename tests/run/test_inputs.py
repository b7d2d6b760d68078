"""The arrays that a failed test gave to its device are kept, if they are few and there is room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.run import inputs
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.inputs import keep_inputs
from tests.run.gate import Gate

FAILS = """
import pytest
@pytest.mark.spec("a.works")
def test_works(session, project):
    import numpy
    opened = session(project.forward("linear"))
    arrays = [numpy.full(tensor["shape"], 0.5, "float32") for tensor in opened.signature["inputs"]]
    assert not opened.invoke(arrays), "it has outputs"
"""


def gave(*arrays: Any) -> Evidence:
    return Evidence(deadline=0.0, nodeid="tests/test_it.py::test_it[xla-mlp/1]", arrays=arrays)


def test_what_went_in_is_kept(tmp_path: Path) -> None:
    evidence = gave(np.arange(3.0), np.ones((2, 2), "float32"))
    keep_inputs(evidence, tmp_path / "logs", "gw0")

    path = tmp_path / "logs" / "inputs-gw0-test_it-xla-mlp-1-.npz"
    assert evidence.notes == {"inputs": str(path)}
    with np.load(path) as kept:
        assert [kept[name].tolist() for name in kept.files] == [[0.0, 1.0, 2.0], [[1.0, 1.0], [1.0, 1.0]]]


def test_too_much_and_nothing_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MOST", 15)
    for evidence in (gave(), gave(np.zeros(2))):
        keep_inputs(evidence, tmp_path / "logs", "gw0")
        assert evidence.notes == {}
    assert not (tmp_path / "logs").exists()


def test_a_folder_that_takes_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    evidence = gave(np.zeros(2))
    keep_inputs(evidence, tmp_path / "logs", "gw0")

    assert "File exists" in evidence.notes["inputs_lost"]


def test_they_lie_in_the_folder_of_the_broken_cell(gate: Gate) -> None:
    gate.suite(
        FAILS, '[a.works]\nkind = "step"\ntitle = "T"\nheading = "H"\non = "any"\nlowerers = ["xla"]\n'
    ).here()
    (path,) = (gate.out / "broken" / "a.works-xla").glob("inputs-*.npz")

    with np.load(path) as kept:
        assert {float(kept[name].max()) for name in kept.files} == {0.5}
