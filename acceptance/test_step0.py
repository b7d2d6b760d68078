"""Step 0: Pull + Lean toolchain. BOOTSTRAP.md#step-0-pull--lean-toolchain"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CommandError
from pytest_cudaboot.probes.health import lean_pin
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.lean import opened, pinned_version, told_version
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.lean import Sandbox


# > git pull
@pytest.mark.spec("step0.tree")
def test_the_tree_is_a_commit_and_its_changes_are_known(
    run: Runner, project: Project, evidence: Evidence
) -> None:
    # Without the option git would write what it learned into the checkout.
    git = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]
    commit = run([*git, "rev-parse", "HEAD"], cwd=project.path, device=False).stdout.strip()
    changed = run(
        [*git, "status", "--porcelain", "--", "."], cwd=project.path, device=False
    ).stdout.splitlines()

    evidence.measure(commit=commit, changed_files=len(changed))
    assert re.fullmatch(r"[0-9a-f]{40,64}", commit)
    assert [line for line in changed if line.startswith(("UU", "AA", "DD"))] == [], "a merge is not finished"


@pytest.fixture
def pinned(sandbox: Sandbox) -> str:
    """The version of Lean that the checkout pins."""
    pin = sandbox.root / "lean-toolchain"
    version = pinned_version(pin.read_text()) if pin.is_file() else None
    assert version, "lean-toolchain names no version"
    return version


# > In a project with Lean sources this step brings the toolchain
@pytest.mark.spec("step0.toolchain")
def test_lake_is_of_the_pinned_toolchain(
    lake: Callable[..., Completed], sandbox: Sandbox, pinned: str, evidence: Evidence
) -> None:
    has = lean_pin(sandbox.root, sandbox.environ) or ""
    if "fetched" in has:  # lake itself would fetch it
        pytest.skip(f"{has}; `elan toolchain install $(cat lean-toolchain)`")

    told = told_version(lake("--version").stdout)

    evidence.measure(pinned=pinned, told=told)
    assert told == pinned


# > Nothing here is specific to a GPU.
@pytest.mark.spec("step0.no-gpu")
def test_lake_opens_neither_driver_nor_shim(
    lake: Callable[..., Completed], tmp_path: Path, measure: Callable[..., None]
) -> None:
    lake("--version", env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "loader")})

    traces = [path.read_bytes() for path in tmp_path.glob("loader.*")]
    measure(processes=len(traces))
    assert {name for trace in traces for name in opened(trace)} == set()


@pytest.mark.spec("pre.elan-auto")
def test_elan_brings_the_pinned_toolchain_by_itself(
    lake: Callable[..., Completed], pinned: str, tmp_path: Path, measure: Callable[..., None]
) -> None:
    done = lake("--version", env={"ELAN_HOME": str(tmp_path / "elan")})

    measure(told=told_version(done.stdout))
    assert told_version(done.stdout) == pinned


@pytest.mark.spec("pre.elan-auto", role="canary")
def test_a_toolchain_that_nobody_published_is_refused_by_name(
    run: Runner, sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "lean-toolchain").write_text("leanprover/lean4:v0.0.1-nobody\n")

    with pytest.raises(CommandError, match=r"v0\.0\.1-nobody"):
        run([sandbox.program, "--version"], env={"ELAN_HOME": str(tmp_path / "elan")}, device=False)
