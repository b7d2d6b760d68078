"""What can run of a checkout of another house runs, the rest is named, and nothing in it changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.project import find_project
from tests.foreign.checkout import fingerprint, write
from tests.run.gate import Gate

FILES = ("test_artifacts.py", "test_fast_path_build.py", "test_fast_path_verbs.py")
GRAPHS_ONLY = FILES[:1]
HELD = {"fast.one-liner", "fast.shim-links", "fast.client"}
GRAPHS = {"artifacts.rules", "artifacts.compiles", "artifacts.runs"}


def judged(gate: Gate, checkout: Path, *words: str) -> pytest.RunResult:
    """A run of the gate over a checkout."""
    return gate.here("--cudaboot-project", str(checkout), *words)


def test_a_checkout_of_another_shape_is_accepted_and_left_as_it_was(
    suite: Callable[..., Gate], foreign: Path
) -> None:
    gate, before = suite(*FILES), fingerprint(foreign)

    result = judged(gate, foreign)

    assert result.ret == 0
    assert gate.verdict["verdict"] == "accept"
    assert gate.outcomes == dict.fromkeys(HELD | GRAPHS, "holds") | {"fast.train-verb": "unsupported"}
    assert fingerprint(foreign) == before
    out = {entry["spec"]: entry["reason"] for entry in gate.verdict["scope"]["out"]}
    assert out["fast.c-api"] == "no trainer of the reference's kind, for want of ffi/trainer.c"
    result.stdout.fnmatch_lines(["accept · other · 6 specs hold, 1 unsupported*"])
    assert_told(gate)


def assert_told(gate: Gate) -> None:
    """Its own line and graphs are what was judged, and the verdict says how each part was found."""
    project, cells = gate.verdict["project"], gate.cells
    assert (
        project["build_line"] == cells["fast.one-liner"]["evidence"]["build_line"] == "historical/CUDA.md:6"
    )
    assert project["parts"]["artifacts"]["found_via"] == "folders that hold *.mlir"
    assert project["parts"]["oracle"] == {
        "found": [],
        "count": 0,
        "found_via": None,
        "tried": ["nets/oracle.py"],
    }
    assert set(project["artifacts"]) == {
        "renders/affine_fwd.mlir",
        "renders/counts.mlir",
        "renders/steps/affine_sgd.mlir",
    }
    assert list(cells["artifacts.rules"]["evidence"]["other_than_artifacts"]) == ["renders/counts.mlir"]
    assert cells["artifacts.runs"]["evidence"]["errors"]["affine_sgd"]["moved"] == 1


def test_without_iree_a_graph_is_held_to_itself(suite: Callable[..., Gate], foreign: Path) -> None:
    gate = suite(*GRAPHS_ONLY)

    result = judged(gate, foreign, "--cudaboot-lowerers", "xla")

    assert (result.ret, gate.cells["artifacts.runs"]["evidence"]["compared_with"]) == (0, "xla once more")


def test_without_graphs_their_specs_are_out_of_scope(foreign: Path) -> None:
    shutil.rmtree(foreign / "renders")

    told = find_project(str(foreign), foreign).conditions()

    assert (told["graphs"], told["artifacts"]) == ("no *.mlir", "no *.mlir without an oracle")


def test_a_graph_that_no_compiler_takes_is_broken_and_the_others_go_on(
    suite: Callable[..., Gate], foreign: Path
) -> None:
    gate = suite(*GRAPHS_ONLY)
    text = (foreign / "renders" / "affine_fwd.mlir").read_text()
    write(
        foreign / "renders" / "wrong.mlir",
        text.replace("affine_fwd", "wrong").replace("add", "no_such_operation"),
    )

    result = judged(gate, foreign, "--cudaboot-lowerers", "xla")

    assert (result.ret, gate.outcomes["artifacts.compiles"]) == (1, "broken")
    cell = gate.cells["artifacts.compiles"]
    assert list(cell["evidence"]["failed_compiled"]) == ["renders/wrong.mlir"]
    assert (cell["measurements"]["compiled"], cell["measurements"]["failed"]) == (2, 1)


def test_a_shim_that_the_documents_line_does_not_build_is_broken(
    suite: Callable[..., Gate], foreign: Path
) -> None:
    gate = suite(*FILES)
    write(foreign / "ffi" / "bridge.c", "#error not today\n")

    result = judged(gate, foreign, "--cudaboot-lowerers", "xla")

    assert (result.ret, gate.outcomes["fast.one-liner"]) == (1, "broken")
    assert gate.outcomes["fast.client"] == "blocked"
