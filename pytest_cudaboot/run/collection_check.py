"""What was collected, and whether it is what the catalogue asks for. It decides nothing: what it finds is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudaboot.model import RunRecord
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.catalog import Catalog, bind_problems
from pytest_cudaboot.rules.document import missing_headings
from pytest_cudaboot.run.failures import last_words
from pytest_cudaboot.run.items import Collection
from pytest_cudaboot.run.plan import Plan
from pytest_cudaboot.run.prepare import CATALOG


class CollectionCheck:
    """The modules that could not be collected, or were skipped as a whole.

    What can not be collected can not speak for its specs, and nobody knows which those are.
    """

    def __init__(self) -> None:
        self.broken = 0
        self.skipped = 0

    def take(self, report: pytest.CollectReport) -> str | None:
        """What is wrong with a part of the collection, or None."""
        where = report.nodeid or "the collection"
        if report.failed:
            self.broken += 1
            return f"{where} could not be collected: {last_words(report.longreprtext)}"
        if report.skipped:
            self.skipped += 1
            return f"{where} was skipped as a whole: {_why_skipped(report)}"
        return None

    def misfits(self, catalog: Catalog, plan: Plan, run: RunRecord, collection: Collection) -> list[str]:
        """What a whole collection lacks is missing from the suite; of part of one nothing can be said."""
        if plan.partial or collection.deselected or self.skipped or self.broken:
            return []
        problems = bind_problems(catalog, collection.items, run.scope_in, collection.outside)
        return [*problems, *_orphans(catalog, plan)]


def holes(plan: Plan, collection: Collection) -> Iterator[str]:
    """What a selection left out."""
    if collection.deselected:
        yield f"left out by a selection: {', '.join(collection.deselected)}"
    if plan.partial:
        yield plan.partial


def _orphans(catalog: Catalog, plan: Plan) -> list[str]:
    """Headings that the document lacks, where catalogue and document ship together."""
    shipped = Path(plan.project) == suite_root() / "fixtures" / "reference"
    ours = catalog.path == suite_root() / "acceptance" / CATALOG
    if not (shipped and ours and plan.document):
        return []
    return missing_headings(catalog, Path(plan.document).read_text(encoding="utf-8"))


def _why_skipped(report: pytest.CollectReport) -> str:
    """Of pytest's triple of file, line and words, the words."""
    where = report.longrepr
    return str(where[2]) if isinstance(where, tuple) else report.longreprtext
