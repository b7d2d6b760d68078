"""One document held against what is known of it: the files that belong to it, found and joined. It writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cudaboot.errors import DocumentError
from pytest_cudaboot.rules.document import read_document
from pytest_cudaboot.rules.document_bindings import (
    BINDINGS,
    FREE,
    UNCOVERED,
    Bindings,
    Review,
    State,
    closest,
    compare,
    dumps,
    load_bindings,
)
from pytest_cudaboot.rules.document_items import Item, items
from pytest_cudaboot.rules.document_quotes import quoted, read_quotes

SHIPPED = "documents"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reviewed:
    """A document, what was remembered of it, and the comparison of both."""

    path: Path
    text: str
    bindings: Bindings
    review: Review


def review_document(
    path: Path, suite: Path, catalog: Collection[str], *, bindings: Path | None = None
) -> Reviewed:
    """Hold a document against its bindings, and against the quotations of a suite.

    :param suite: folder of the catalogue and its tests; `documents/` in it has the bindings that ship with it.
    :param catalog: the specs that there are.
    :param bindings: that file alone; else the one beside the document, else the shipped one that knows most of it.
    :raises DocumentError: for a document or bindings that can not be read.
    """
    text = read_document(path)
    found = items(text)
    known = _known(path, suite, found, bindings)
    review = compare(found, known, catalog=catalog, quoted=quoted(found, read_quotes(suite)))
    return Reviewed(path=path, text=text, bindings=known, review=review)


def _known(path: Path, suite: Path, found: Sequence[Item], named: Path | None) -> Bindings:
    if named is not None:
        return load_bindings(named)
    beside = path.parent / BINDINGS
    if beside.is_file():
        return load_bindings(beside)
    return closest(sorted((suite / SHIPPED).glob("*.toml")), found)


def accepted(reviewed: Reviewed, binds: Mapping[int, tuple[str, ...]], catalog: Collection[str]) -> str:
    """The text of the bindings after somebody has read the document as it is now.

    :param binds: specs for the items of a line, in place of what they were bound to.
    :raises DocumentError: for a line without an item, or a spec that there is not.
    """
    lines = {found.item.line for found in reviewed.review.states}
    for line, specs in binds.items():
        if line not in lines:
            raise DocumentError(f"{reviewed.path}:{line}: nothing checkable begins on this line")
        for spec in specs:
            if spec not in catalog:
                raise DocumentError(f"{reviewed.path}:{line}: no spec {spec!r} in the catalogue")
    states = [_bound(found, binds.get(found.item.line)) for found in reviewed.review.states]
    return dumps(reviewed.path.name, states)


def _bound(found: State, specs: tuple[str, ...] | None) -> State:
    return found if specs is None else replace(found, specs=specs)


def json_of(reviewed: Reviewed) -> dict[str, object]:
    """The same as plain data; texts are the document's own."""
    review = reviewed.review
    return {
        "document": str(reviewed.path),
        "bindings": str(reviewed.bindings.path) if reviewed.bindings.path else None,
        "percent": review.percent(),
        "items": [
            {
                "line": found.item.line,
                "kind": found.item.kind,
                "state": found.state,
                "specs": list(found.specs),
                "hash": found.item.sha,
                "text": found.item.text,
            }
            for found in review.states
            if found.state != FREE
        ],
        "uncovered": len(review.in_state(UNCOVERED)),
        "drifted": list(review.drifted),
        "orphans": list(review.orphans),
        "unknown": list(review.unknown),
    }
