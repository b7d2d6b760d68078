"""`cudaboot explain`: from a spec to its tests, its sentences, its incidents, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.cli import main
from pytest_cudaboot.report.explain import BY_CANARY, BY_KIND, BY_TRACK
from pytest_cudaboot.rules.spec import CANARIES, KINDS, TRACKS

CATALOG = """
[run.base]
kind = "step"
title = "It starts"
heading = "Run"
track = "box"

[run.mode]
kind = "gotcha"
canary = "guard"
title = "Its mode"
heading = "Run"
needs = ["run.base"]
when = ["gpu", "net"]
on = "each"
"""
TESTS = """
import pytest

@pytest.mark.spec("run.mode")
def test_the_mode_is_kept(): ...

@pytest.mark.spec("run.mode", role="canary")
def test_without_it_nothing_runs(): ...

def test_of_nobody(): ...
"""
INCIDENTS = """
[X-1]
tags = ["G"]
what = "The mode was lost"
specs = ["run.mode"]
fix = "Set the mode again"
"""

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with a document that one of its specs is bound to."""
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "catalog.toml").write_text(CATALOG)
    (folder / "test_run.py").write_text(TESTS)
    (folder / "incidents.toml").write_text(INCIDENTS)
    (tmp_path / "RUN.md").write_text("# Run\n\n\u26a0 Leave MODE unset.\n")
    catalog = str(folder / "catalog.toml")
    assert (
        main(["--catalog", catalog, "doc", "review", "--bind", "3=run.mode", str(tmp_path / "RUN.md")]) == 0
    )
    return folder


def told(suite: Path, spec: str, capsys: Captured) -> str:
    document = suite.parent / "RUN.md"
    capsys.readouterr()
    words = ["--catalog", str(suite / "catalog.toml"), "explain", "--document", str(document), spec]
    assert main(words) == 0
    return capsys.readouterr().out


def test_it_goes_from_checks_to_sentences_to_incidents_to_cures(suite: Path, capsys: Captured) -> None:
    assert told(suite, "run.mode", capsys).partition("   checks")[2].splitlines() == [
        "  the mode is kept",
        "           without it nothing runs (canary)",
        "  encodes  RUN.md:3 \u26a0 Leave MODE unset.",
        "  because  X-1: The mode was lost",
        "   if red  Set the mode again",
        "           a red check: the workaround no longer works",
        "           a red canary: what is guarded against is not refused any more, or not in the documented way",
        "           a silent canary is broken: a guard that no longer fires guards nothing",
        "           `blocked`: run.base comes first",
        "           alone: pytest --gpus auto --cudaboot-require net suite/test_run.py",
    ]


def test_a_text_that_changed_is_told_as_such(suite: Path, capsys: Captured) -> None:
    (suite.parent / "RUN.md").write_text("# Run\n\n\u26a0 Set MODE.\n")

    assert "encodes  RUN.md:3 (changed since) \u26a0 Set MODE.\n" in told(suite, "run.mode", capsys)


def test_a_spec_of_the_box_sends_to_the_box_first(suite: Path, capsys: Captured) -> None:
    said = told(suite, "run.base", capsys)

    assert "first look at the box (`cudaboot doctor`)" in said
    assert "alone: pytest --gpus none (no test yet)" in said


def test_every_kind_of_spec_has_a_cure() -> None:
    assert {*BY_KIND, "gotcha"} == set(KINDS)
    assert set(BY_CANARY) == set(CANARIES)
    assert {"toolchain", *BY_TRACK} == set(TRACKS)


def test_a_spec_of_ours_is_explained_with_our_own_document(capsys: Captured) -> None:
    assert main(["explain", "fast.one-liner"]) == 0
    assert "  encodes  BOOTSTRAP.md:" in capsys.readouterr().out
