"""A project's oracles: its own Python file, loaded by its path."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_cudaboot.errors import ProjectError
from pytest_cudaboot.project import Project, describe, find_project
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


def test_a_checkout_that_can_not_be_written_to_is_read_and_left_as_it_was(checkout: Project) -> None:
    """Neither bytecode beside the oracle nor what git likes to note; a folder's times tell for root as well."""
    checkout.oracles.write_text(ORACLE)
    (checkout.path / "ffi" / "pjrt_ffi.c").touch()
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"),
    ):
        subprocess.run(["/usr/bin/env", "git", *words], cwd=checkout.path, check=True)
    os.utime(checkout.oracles, (1, 1))  # so that git's index is out of date
    for path in (checkout.path, *checkout.path.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    before = state(checkout.path)

    assert load_net(checkout, "tiny").forward.inputs(seed=3) == [3, len("tiny_fwd")]
    facts = describe(checkout, {"PATH": os.defpath, "HOME": str(checkout.path)})
    assert (len(str(facts["commit"])), facts["dirty"]) == (40, False)
    assert state(checkout.path) == before


def state(root: Path) -> dict[Path, tuple[int, bytes]]:
    """Of each entry when it changed, and what is in it."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (root, *root.rglob("*"))
    }


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
