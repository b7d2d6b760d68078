"""A project's oracles: its own Python file, loaded by its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.errors import ProjectError
from pytest_cudaboot.project import Project, find_project
from pytest_cudaboot.run.nets import load_net

ORACLE = """
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass(frozen=True)
class Layer:
    sizes: list[int] = field(default_factory=list)

def run(inputs):
    return [sum(inputs)]

ORACLES = {"tiny_fwd": run, "tiny_train_step": run}
FAMILY = dict.fromkeys(ORACLES, "dense")
UPDATES = dict.fromkeys(ORACLES, {0: 1})
RATE = dict.fromkeys(ORACLES, 0.1)

def inputs(entry, seed):
    return [seed, len(entry)]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Project:
    (tmp_path / "ffi").mkdir()
    (tmp_path / "nets").mkdir()
    for name in ("tiny_fwd.mlir", "tiny_train_step.mlir"):
        (tmp_path / "nets" / name).touch()
    return find_project(str(tmp_path), tmp_path)


def test_both_graphs_of_a_net_with_inputs_and_oracle(checkout: Project) -> None:
    checkout.oracles.write_text(ORACLE)
    net = load_net(checkout, "tiny")

    assert (net.forward.entry, net.step.entry, net.step.family) == ("tiny_fwd", "tiny_train_step", "dense")
    assert net.forward.inputs(seed=3) == [3, len("tiny_fwd")]
    assert net.step.oracle([1, 2]) == [3]
    assert net.step.updates == {0: 1}


def test_a_net_that_the_oracles_do_not_know(checkout: Project) -> None:
    checkout.oracles.write_text(ORACLE.replace('"tiny_train_step": run', '"other": run'))

    with pytest.raises(ProjectError, match=r"has no oracle for 'tiny_train_step'; it has: tiny_fwd, other"):
        load_net(checkout, "tiny")


def test_oracles_that_lack_a_table(checkout: Project) -> None:
    checkout.oracles.write_text(ORACLE.replace("UPDATES", "STEPS"))

    with pytest.raises(ProjectError, match=r"oracle.py' lacks UPDATES"):
        load_net(checkout, "tiny")


def test_a_project_without_oracles(checkout: Project) -> None:
    with pytest.raises(ProjectError, match=r"no oracles: '.*nets/oracle.py' is not there"):
        load_net(checkout, "tiny")
