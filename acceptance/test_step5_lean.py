"""Step 5: Smoke test, of a checkout whose trainers lake builds. BOOTSTRAP.md#step-5-smoke-test"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.probes.lake import linked
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.lean import (
    BINARIES,
    Trainer,
    documented_trainers,
    log_faults,
    losses,
    opened,
)
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.lean import Sandbox

from .conftest import IREE_SHIM, MARGIN, SHIM

ENOUGH = 20  # losses: after so many a run has shown that it learns
LOOK = 0.2  # seconds between two looks at a log
SHIMS = {"xla": SHIM, "iree": IREE_SHIM}


@pytest.fixture
def trainers(document_text: str) -> tuple[Trainer, ...]:
    """The programs that the document builds with lake and runs."""
    found = documented_trainers(document_text)
    if not found:
        pytest.skip(f"the document has no `lake build NAME` with a line that runs {BINARIES}NAME")
    return found


@pytest.fixture
def built(
    lake: Callable[..., Completed], sandbox: Sandbox, request: pytest.FixtureRequest
) -> Callable[[Trainer], Path]:
    """A function that builds a trainer in the copy, beside the shims that are judged."""

    def build(trainer: Trainer) -> Path:
        (sandbox.root / "ffi").mkdir(exist_ok=True)
        shutil.copy2(request.getfixturevalue("pjrt_shim"), sandbox.root / "ffi" / SHIM)
        given: Path | None = request.getfixturevalue("given_iree_shim")
        if given is not None:
            shutil.copy2(given, sandbox.root / "ffi" / IREE_SHIM)
        lake("build", trainer.name)
        return sandbox.root / BINARIES / trainer.name

    return build


@pytest.mark.spec("fast.lake-trainer")
def test_lake_builds_the_first_trainer(
    built: Callable[[Trainer], Path], trainers: tuple[Trainer, ...], measure: Callable[..., None]
) -> None:
    program = built(trainers[0])

    measure(trainer=trainers[0].name, bytes=program.stat().st_size)
    assert os.access(program, os.X_OK)


@pytest.mark.spec("step5.build")
def test_lake_builds_every_trainer_of_the_document(
    built: Callable[[Trainer], Path], trainers: tuple[Trainer, ...], measure: Callable[..., None]
) -> None:
    programs = [built(trainer) for trainer in trainers]

    measure(trainers=[program.name for program in programs])
    assert all(os.access(program, os.X_OK) for program in programs)


@pytest.mark.spec("step5.lean-trains")
def test_a_trainer_learns_through_xla(train_a_while: Callable[[str], str], evidence: Evidence) -> None:
    assert_learns(train_a_while("xla"), evidence)


@pytest.mark.spec("step5.lean-trains-iree")
def test_a_trainer_learns_through_iree(train_a_while: Callable[[str], str], evidence: Evidence) -> None:
    assert_learns(train_a_while("iree"), evidence)


def assert_learns(log: str, evidence: Evidence) -> None:
    """A fresh run whose loss falls, by its own log."""
    evidence.measure(losses=len(losses(log)), first=losses(log)[:1], last=losses(log)[-1:])
    assert log_faults(log) == []


def make_ready(root: Path, data: Path) -> None:
    """The data where a trainer looks for it, and no checkpoint of an earlier run in this copy, which it would resume."""
    linked(data, root / "data")
    for left in root.glob(".lake/build/*_ckpt*"):
        left.unlink()


@pytest.fixture
def train_a_while(
    run: Runner,
    built: Callable[[Trainer], Path],
    project: Project,
    trainers: tuple[Trainer, ...],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    evidence: Evidence,
) -> Callable[[str], str]:
    """A function that trains until enough is known, and gives the log; only the shim that was asked for may be opened."""

    def train_through(lowerer: str) -> str:
        sandbox: Sandbox = request.getfixturevalue("sandbox")
        program, output = built(trainers[0]), tmp_path / "trainer.log"
        if lowerer == "iree":
            shutil.copy2(request.getfixturevalue("iree_shim"), sandbox.root / "ffi" / IREE_SHIM)
        make_ready(sandbox.root, project.data)
        plugin = request.getfixturevalue("pjrt_plugin") if lowerer == "xla" else None
        env = {
            "LEAN_MLIR_LOWERER": lowerer,
            "PJRT_PLUGIN": str(plugin) if plugin else None,
            "PATH": sandbox.path,
            "LD_DEBUG": "files",
            "LD_DEBUG_OUTPUT": str(tmp_path / "loader"),
        }
        argv = [str(program), *trainers[0].arguments]
        evidence.note(argv=argv)
        with run.background(argv, output, cwd=sandbox.root, env=env) as learner:
            while not learner.wait(LOOK) and len(losses(read(output))) < ENOUGH and evidence.left > MARGIN:
                pass
        check_loaded(lowerer, tmp_path, read(output), evidence)
        return read(output)

    return train_through


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def check_loaded(lowerer: str, traces: Path, log: str, evidence: Evidence) -> None:
    """What the loader opened says where it ran and through which shim."""
    names = {name for path in traces.glob("loader.*") for name in opened(path.read_bytes())}
    loaded = sorted({Path(name).name for name in names} & set(SHIMS.values()))
    evidence.ran_on("cuda" if any("libcuda.so" in name for name in names) else "cpu", [])
    evidence.note(loaded=loaded, log_tail=log[-2000:])
    assert loaded == [SHIMS[lowerer]], f"asked for {lowerer}, loaded {loaded}: {log[-500:]}"
