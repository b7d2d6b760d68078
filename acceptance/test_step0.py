"""Step 0: Pull + Lean toolchain. BOOTSTRAP.md#step-0-pull--lean-toolchain"""

from __future__ import annotations

import re

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner


# > git pull
@pytest.mark.spec("step0.tree")
def test_the_tree_is_a_commit_and_its_changes_are_known(
    run: Runner, project: Project, evidence: Evidence
) -> None:
    commit = run(["git", "rev-parse", "HEAD"], cwd=project.path, device=False).stdout.strip()
    changed = run(
        ["git", "status", "--porcelain", "--", "."], cwd=project.path, device=False
    ).stdout.splitlines()

    evidence.measure(commit=commit, changed_files=len(changed))
    assert re.fullmatch(r"[0-9a-f]{40,64}", commit)
    assert [line for line in changed if line.startswith(("UU", "AA", "DD"))] == [], "a merge is not finished"
