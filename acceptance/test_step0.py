"""Step 0: Pull + Lean toolchain. BOOTSTRAP.md#step-0-pull--lean-toolchain"""

from __future__ import annotations

import re

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner

LEAN_VERSION = re.compile(r"\bv?(4\.\d+\.\d+)\b")


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


@pytest.mark.spec("step0.lean-versions")
def test_every_mention_of_a_lean_version_agrees(
    document_text: str, project: Project, evidence: Evidence
) -> None:
    mentioned = lean_versions(document_text)
    pin = project.path / "lean-toolchain"
    pinned = set(LEAN_VERSION.findall(pin.read_text(encoding="utf-8"))) if pin.is_file() else set()

    evidence.measure(mentioned=sorted(mentioned), pinned=sorted(pinned))
    assert len(mentioned | pinned) <= 1


@pytest.mark.spec("step0.lean-versions")
def test_two_lean_versions_would_be_seen(evidence: Evidence) -> None:
    evidence.act()

    planted = "`leanprover/lean4:v4.12.0`\nThe toolchain is 4.14.0.\nPython 4.99.0 is another matter."
    assert lean_versions(planted) == {"4.12.0", "4.14.0"}


def lean_versions(text: str) -> set[str]:
    """The versions in the lines that speak of Lean or its toolchain."""
    lines = [line for line in text.splitlines() if re.search(r"\blean|toolchain", line, re.IGNORECASE)]
    return {version for line in lines for version in LEAN_VERSION.findall(line)}
