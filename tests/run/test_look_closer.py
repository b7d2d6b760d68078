"""A comparison that fails looks for the first bad operation, notes it, and fails as it would have."""

from __future__ import annotations

import json

import pytest

from tests.run.gate import WORKS, Gate

# A lowerer that is the interpreter, and reads `add` as `subtract`.
FAULTY = """
import numpy as np
import pytest
from contextlib import nullcontext
from pytest_cudaboot.errors import CompileError, NumericError
from pytest_cudaboot.run.nets import load_net
from pytest_cudaboot.rules.stablehlo_eval import interpret
from pytest_cudaboot.rules.stablehlo_text import read_function

class Faulty:
    name, platform, facts = "iree", "cpu", {"name": "iree", "platform": "cpu"}
    def open_session(self, path, source=None):
        return Session(read_function(path.read_text().replace("stablehlo.add", "stablehlo.subtract")))

class Session:
    def __init__(self, function): self.function = function
    def invoke(self, arrays):
        values = interpret(self.function, dict(zip(self.function.arguments, arrays)))
        return [np.asarray(values[name], np.float32) for name in self.function.returned]
    def close(self): pass

@pytest.fixture
def open_lowerer(evidence):
    def open_named(name):
        evidence.note(facts="of the search")
        evidence.arrays = ()
        handle = Faulty()
        handle.name = name
        return handle
    return open_named

@pytest.mark.spec("a.works")
def test_works(look_closer, project, evidence):
    evidence.measure(figure=1)
    graph = load_net(project, "linear").forward
    inputs = graph.inputs(1)
    with look_closer(graph, inputs, ["xla"]):
        {body}
"""
DIFFERS = 'evidence.arrays = inputs; raise NumericError("it differs")'


def gate_with(gate: Gate, body: str) -> Gate:
    gate.suite(FAULTY.replace("{body}", body), WORKS).here()
    return gate


def test_the_place_is_in_the_evidence_and_the_outcome_is_as_before(gate: Gate) -> None:
    cell = gate_with(gate, DIFFERS).cells["a.works"]

    assert (cell["outcome"], cell["cause"], cell["reason"]) == ("broken", "numeric", "it differs")
    bad = cell["evidence"]["first_bad"]
    assert (bad["op"], bad["line"], bad["shape"], bad["lowerer"]) == ("stablehlo.add", 5, [128, 10], "xla")
    assert bad["error"] > bad["tolerance"]
    assert bad["folder"] == "broken/a.works-host/first-bad/linear_fwd"
    assert "facts" not in cell["evidence"]
    assert "inputs" in cell["evidence"]


def test_the_folder_has_no_word_of_this_machine(gate: Gate) -> None:
    folder = gate.out / "broken/a.works-host/first-bad/linear_fwd"
    folder.mkdir(parents=True)
    (folder / "input_7.npy").write_text("of an earlier run")

    gate_with(gate, DIFFERS)

    assert not (folder / "input_7.npy").exists()
    assert {path.name for path in folder.iterdir()} >= {
        "module.mlir",
        "README.md",
        "expected.npy",
        "seen.npy",
    }
    assert json.loads((folder / "facts.json").read_text())["op"] == "stablehlo.add"
    for path in folder.iterdir():
        assert str(gate.path).encode() not in path.read_bytes()


def test_nothing_is_looked_for_where_nothing_differs(gate: Gate) -> None:
    cell = gate_with(gate, "pass").cells["a.works"]

    assert cell["outcome"] == "holds"
    assert "first_bad" not in cell["evidence"]


def test_a_search_that_fails_itself_is_told_and_no_more(gate: Gate) -> None:
    cell = gate_with(
        gate, f'Faulty.open_session = lambda *_: (_ for _ in ()).throw(CompileError("refused")); {DIFFERS}'
    ).cells["a.works"]

    assert (cell["outcome"], cell["reason"]) == ("broken", "it differs")
    assert cell["evidence"]["first_bad"] == {"found": "nothing: refused"}


def test_the_budget_ends_a_search(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_cudaboot.run.first_bad.BUDGET", -1.0)

    cell = gate_with(gate, DIFFERS).cells["a.works"]

    assert cell["cause"] == "numeric"
    found = cell["evidence"]["first_bad"]["found"]
    assert found == "xla: none of 0 operations is off by itself; no more than -1 s are spent on it"
