"""Step 3: CUDA runtime FFI, the shim at work. BOOTSTRAP.md#step-3-cuda-runtime-ffi-ffilibiree_ffiso"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.lowerers.modules import Modules
from pytest_cudaboot.probes.iree_tree import given
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import choose_device
from pytest_cudaboot.rules.iree_tree import commit_fault
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.iree import compiled
from pytest_cudaboot.run.nets import Net
from pytest_cudaboot.run.worker import WORKER

from .conftest import Trained
from .nets import plainest_net

SEED = 31
STEPS = 20
# What the two lowerers' losses may differ by, of their size: the first steps of a net of dots, TF32 included.
AGREEMENT = 3e-3


@pytest.fixture(scope="module")
def plainest(project: Project) -> Net:
    return plainest_net(project)


@pytest.fixture
def vmfb(modules: Modules, plainest: Net, iree_checkout: Path, evidence: Evidence, gpus: Any) -> str:
    """A folder in the checkout with the plainest net's modules, for this run's device."""
    folder = iree_checkout / "vmfb"
    folder.mkdir()
    worker_gpus = gpus if modules.target.backend == "cuda" else ()
    for graph in (plainest.forward, plainest.step):
        shutil.copy2(
            compiled(modules, graph.path, worker_gpus, evidence).path, folder / f"{graph.entry}.vmfb"
        )
    return folder.name


# > The checkout has to be at the very commit that
# > `iree-compile --version` prints.
@pytest.mark.spec("step3.tree-commit")
def test_the_runtime_is_of_the_compilers_commit(
    modules: Modules, evidence: Evidence, request: pytest.FixtureRequest
) -> None:
    evidence.act()
    named = given(request.config.stash[WORKER].environ)
    if named is None:
        # A library does not tell its commit; a runtime of a far one refuses the module, and one of a near one hangs.
        trained = request.getfixturevalue("train_through_iree")("--steps", "3")
        assert trained.header["lowerer"] == "iree"
        return
    facts = request.getfixturevalue("iree_tree").facts
    evidence.note(tree_commit=facts.commit, tree_modified=facts.modified, compiler_commit=modules.name.commit)
    fault = commit_fault(facts, modules.name.commit)
    if fault is not None:
        pytest.fail(fault)


@pytest.fixture
def train_through_iree(
    train: Callable[..., Trained], plainest: Net, vmfb: str, request: pytest.FixtureRequest
) -> Callable[..., Trained]:
    """A function that trains the plainest net through the IREE shim, on this worker's device."""
    worker = request.config.stash[WORKER]
    env = {
        "LEAN_MLIR_LOWERER": "iree",
        "IREE_DEVICE": choose_device(worker.plan.platform, worker.environ),
    }

    def run_trainer(*options: str) -> Trained:
        return train(plainest.name, *options, "--vmfb", vmfb, env=env)

    return run_trainer


# > two lowerers differ in one thing, the `.so` that the
# > trainer `dlopen`s.
@pytest.mark.spec("step3.trains")
def test_both_lowerers_train_alike(
    train: Callable[..., Trained],
    train_through_iree: Callable[..., Trained],
    plainest: Net,
    device: str,
    measure: Callable[..., None],
) -> None:
    options = ("--steps", str(STEPS), "--seed", str(SEED))

    iree = train_through_iree(*options)
    xla = train(plainest.name, *options, env={"LEAN_MLIR_LOWERER": "xla"})

    assert [run.header["lowerer"] for run in (iree, xla)] == ["iree", "xla"]
    assert {run.header["device"] for run in (iree, xla)} == {device}
    assert iree.header["artifacts"] == xla.header["artifacts"]
    differences = np.abs(np.array(iree.losses) / np.array(xla.losses) - 1)
    measure(steps=len(differences), largest_relative_difference=float(differences.max()))
    assert len(differences) == STEPS
    assert differences.max() < AGREEMENT
    assert iree.losses[-1] < iree.losses[0]
