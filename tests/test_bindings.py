"""What the suite remembers of documents: its own is covered and read, and every spec that is named exists or is planned."""

from __future__ import annotations

import tomllib

import pytest

from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.document_bindings import load_bindings
from pytest_cudaboot.rules.document_review import Reviewed, review_document

SUITE = suite_root() / "acceptance"
DOCUMENT = suite_root() / "fixtures" / "reference" / "BOOTSTRAP.md"
ACCEPT = "cudaboot doc review fixtures/reference/BOOTSTRAP.md --to acceptance/documents/BOOTSTRAP.toml"
KNOWN = set(load_catalog(SUITE / "catalog.toml").specs)
PLANNED = tomllib.loads((SUITE / "planned.toml").read_text())


@pytest.fixture(scope="module")
def reviewed() -> Reviewed:
    return review_document(DOCUMENT, SUITE, KNOWN)


def test_each_command_warning_and_figure_of_our_document_is_encoded(reviewed: Reviewed) -> None:
    bare = [f"{found.item.line}: {found.item.text}" for found in reviewed.review.in_state("uncovered")]

    assert bare == [], f"bind each to a spec: {ACCEPT} --bind LINE=SPEC"


def test_our_document_is_the_one_that_was_read(reviewed: Reviewed) -> None:
    assert reviewed.bindings.path == SUITE / "documents" / "BOOTSTRAP.toml"
    assert (reviewed.review.drifted, reviewed.review.orphans) == ((), ()), f"read them, then: {ACCEPT}"
    assert reviewed.review.unknown == ()


@pytest.mark.parametrize("path", sorted((SUITE / "documents").glob("*.toml")), ids=lambda path: path.stem)
def test_every_spec_that_is_named_exists_or_is_planned(path: str) -> None:
    named = {spec for entry in load_bindings(SUITE / "documents" / path).entries for spec in entry.specs}

    assert named - KNOWN - set(PLANNED) == set()


def test_what_is_planned_says_why() -> None:
    assert [spec for spec, reason in PLANNED.items() if not isinstance(reason, str) or len(reason) < 8] == []
