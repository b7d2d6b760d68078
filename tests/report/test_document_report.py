"""`cudaboot doc`: what it prints of a document, what it writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cudaboot.cli import main

CATALOG = """
[run.memory]
kind = "step"
title = "It fits"
heading = "Run"

[run.mode]
kind = "step"
title = "Its mode"
heading = "Run"
"""
DOCUMENT = "# Run\n\nIt takes 3 GB.\n\n\u26a0 Leave MODE unset.\n"

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """A document in a folder of its own, with a suite beside that folder."""
    suite, folder = tmp_path / "suite", tmp_path / "checkout"
    suite.mkdir()
    folder.mkdir()
    (suite / "catalog.toml").write_text(CATALOG)
    (folder / "RUN.md").write_text(DOCUMENT)
    return folder / "RUN.md"


def doc(document: Path, command: str, *words: str) -> int:
    catalog = document.parents[1] / "suite" / "catalog.toml"
    return main(["--catalog", str(catalog), "doc", command, *words, str(document)])


def reviewed(document: Path) -> None:
    """As if somebody had bound and accepted it."""
    assert doc(document, "review", "--bind", "3=run.memory", "--bind", "5=run.mode") == 0


def test_what_nobody_encodes_is_listed_with_its_line(document: Path, capsys: Captured) -> None:
    assert doc(document, "coverage") == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{document}, by no bindings, quotations alone",
        "  command  0 of 0 bound, 100 %",
        "  warning  0 of 1 bound, 0 %",
        "    claim  0 of 1 bound, 0 %",
        "   output  0 of 0 bound, 100 %",
        "      all  0.0 % bound, 0.0 % to a spec that there is",
        "uncovered:",
        "  RUN.md:3  claim  It takes 3 GB.",
        "  RUN.md:5  warning  \u26a0 Leave MODE unset.",
    ]


def test_a_review_binds_and_says_where_it_wrote(document: Path, capsys: Captured) -> None:
    reviewed(document)

    kept = document.parent / "cudaboot-document.toml"
    assert capsys.readouterr().out == f"accepted {document} as it is now, written to {kept}\n"
    assert doc(document, "coverage") == 0
    assert "100.0 % bound, 100.0 % to a spec that there is" in capsys.readouterr().out


def test_a_review_may_write_elsewhere(document: Path, tmp_path: Path, capsys: Captured) -> None:
    kept = tmp_path / "kept.toml"

    assert doc(document, "review", "--to", str(kept)) == 1
    assert sorted(path.name for path in document.parent.iterdir()) == ["RUN.md"]
    assert "bind them with `--bind LINE=SPEC`" in capsys.readouterr().out
    assert doc(document, "coverage", "--bindings", str(kept)) == 1


def test_an_edited_warning_is_drifted_until_it_is_reviewed(document: Path, capsys: Captured) -> None:
    reviewed(document)
    document.write_text(DOCUMENT.replace("Leave MODE unset", "Set MODE"))
    capsys.readouterr()

    assert doc(document, "coverage") == 1
    out = capsys.readouterr().out
    assert "drifted:\n  RUN.md:5  warning [run.mode]  \u26a0 Set MODE.\ndrifted specs: run.mode;" in out
    assert doc(document, "review") == 0
    assert "  run.mode: was drifted\n" in capsys.readouterr().out
    assert doc(document, "coverage") == 0


def test_a_spec_without_text_is_an_orphan_until_it_is_reviewed(document: Path, capsys: Captured) -> None:
    reviewed(document)
    document.write_text("# Run\n\nIt takes 3 GB.\n")

    assert doc(document, "coverage") == 1
    assert "orphans, of whose text nothing is left: run.mode\n" in capsys.readouterr().out
    assert doc(document, "review") == 0
    assert "  run.mode: nothing of its text is left" in capsys.readouterr().out


def test_a_spec_that_has_gone_from_the_catalogue_is_named(document: Path, capsys: Captured) -> None:
    reviewed(document)
    catalog = document.parents[1] / "suite" / "catalog.toml"
    catalog.write_text(CATALOG.replace("run.mode", "run.other"))

    assert doc(document, "coverage") == 1
    out = capsys.readouterr().out
    assert "100.0 % bound, 50.0 % to a spec that there is" in out
    assert "not in the catalogue (1): run.mode\n" in out


def test_the_answer_as_json(document: Path, capsys: Captured) -> None:
    reviewed(document)
    document.write_text(DOCUMENT.replace("3 GB", "4 GB"))
    capsys.readouterr()

    assert doc(document, "coverage", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["percent"], told["drifted"], told["uncovered"]) == (100.0, ["run.memory"], 0)
    assert [(item["line"], item["state"]) for item in told["items"]] == [(3, "drifted"), (5, "bound")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bind", "x"], "--bind 'x' is not LINE=SPEC"),
        (["--bind", "3="], "--bind '3=' is not LINE=SPEC"),
        (["--bind", "4=run.mode"], "RUN.md:4: nothing checkable begins on this line"),
        (["--bind", "3=run.mod"], "RUN.md:3: no spec 'run.mod' in the catalogue"),
        (["--to", "/nowhere/x.toml"], "/nowhere/x.toml: can not be written: No such file"),
        (["--bindings", "/nowhere/x.toml"], "/nowhere/x.toml: can not be read"),
    ],
)
def test_a_review_that_can_not_be(document: Path, capsys: Captured, words: list[str], message: str) -> None:
    assert doc(document, "review", *words) == 4
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in document.parent.iterdir()) == ["RUN.md"]


def test_a_document_that_is_none(document: Path, capsys: Captured) -> None:
    document.write_bytes(b"\x00\xff")

    assert doc(document, "coverage") == 4
    assert "is no UTF-8 text (byte 1)" in capsys.readouterr().err


def test_contradictions_are_told_with_both_places(document: Path, capsys: Captured) -> None:
    document.write_text("The box has 2 cards.\n\nIt is a node of 3 GPUs.\n")

    assert doc(document, "check") == 1
    assert capsys.readouterr().out.splitlines() == [
        "card-counts: the box has 2 cards, and has 3",
        "  RUN.md:1: The box has 2 cards.",
        "  RUN.md:3: It is a node of 3 GPUs.",
        f"{document}: 1 contradictions",
    ]
    assert doc(document, "check", "--json") == 1
    assert json.loads(capsys.readouterr().out)[0]["there"] == "RUN.md:3: It is a node of 3 GPUs."


def test_a_document_of_one_mind(document: Path, capsys: Captured) -> None:
    assert doc(document, "check", "--tree", str(document.parent)) == 0
    assert doc(document, "check", "--tree", "/nowhere") == 4
    assert "--tree '/nowhere' is not a folder" in capsys.readouterr().err
