"""The acceptance suite holds to the document that it ships with: its headings, and the sentences that it quotes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_cudaboot.project import find_project, suite_root
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.document import missing_headings

ACCEPTANCE = suite_root() / "acceptance"
QUOTE = re.compile(r"(?:^# > .*\n)+", re.MULTILINE)
FILES = sorted(ACCEPTANCE.glob("test_*.py"))


def folded(text: str) -> str:
    """Words only: where a line breaks says nothing."""
    return " ".join(text.split())


def document() -> str:
    found = find_project("reference", Path.cwd()).document
    assert found is not None
    return found.read_text()


def quotes(path: Path) -> list[str]:
    blocks = QUOTE.findall(path.read_text())
    return [folded(block.replace("# > ", "")) for block in blocks]


def test_every_heading_of_the_catalogue_is_in_the_document() -> None:
    assert missing_headings(load_catalog(ACCEPTANCE / "catalog.toml"), document()) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_quoted_sentence_is_in_the_document(path: Path) -> None:
    text = folded(document())

    assert [quote for quote in quotes(path) if quote not in text] == []


def test_sentences_are_quoted_at_all() -> None:
    assert sum(len(quotes(path)) for path in FILES) > 15
