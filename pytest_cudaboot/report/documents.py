"""Answers about a bring-up document, as text or JSON. Only `review` writes, and only where it says."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from pytest_cudaboot.errors import DocumentError, UsageError
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.rules.document_bindings import BINDINGS, DRIFTED, UNCOVERED, Review, State
from pytest_cudaboot.rules.document_conflicts import conflicts, reading_of
from pytest_cudaboot.rules.document_items import REQUIRED
from pytest_cudaboot.rules.document_review import Reviewed, accepted, json_of, review_document

WIDTH = 96


def coverage(path: Path, catalog: Catalog, bindings: Path | None, *, as_json: bool, out: TextIO) -> int:
    """Which specs encode which part of a document.

    :returns: 0 if every part is bound to a spec that there is and nothing has changed since, else 1.
    """
    reviewed = review_document(path, catalog.path.parent, catalog.specs, bindings=bindings)
    if as_json:
        json.dump(json_of(reviewed), out, indent=1, ensure_ascii=False)
        out.write("\n")
    else:
        out.writelines(f"{line}\n" for line in _coverage(reviewed))
    return 0 if _settled(reviewed.review) else 1


def _settled(review: Review) -> bool:
    return not (review.in_state(UNCOVERED) or review.drifted or review.orphans or review.unknown)


def _coverage(reviewed: Reviewed) -> Iterator[str]:
    review, name = reviewed.review, reviewed.path.name
    yield f"{reviewed.path}, by {reviewed.bindings.path or 'no bindings, quotations alone'}"
    for kind in REQUIRED:
        there = [found for found in review.states if found.item.kind == kind]
        covered = [found for found in there if found.state != UNCOVERED]
        yield f"{kind:>9}  {len(covered)} of {len(there)} bound, {review.percent(kind):.0f} %"
    yield f"{'all':>9}  {review.percent():.1f} % bound, {_alive(review):.1f} % to a spec that there is"
    yield from _listed("uncovered", name, review.in_state(UNCOVERED))
    yield from _listed("drifted", name, review.in_state(DRIFTED))
    if review.drifted:
        yield f"drifted specs: {', '.join(review.drifted)}; read them, then `cudaboot doc review {reviewed.path}`"
    if review.orphans:
        yield f"orphans, of whose text nothing is left: {', '.join(review.orphans)}"
    if review.unknown:
        yield f"not in the catalogue ({len(review.unknown)}): {', '.join(review.unknown)}"


def _alive(review: Review) -> float:
    wanted = [found for found in review.states if found.item.kind in REQUIRED]
    alive = [found for found in wanted if set(found.specs) - set(review.unknown)]
    return 100.0 * len(alive) / len(wanted) if wanted else 100.0


def _listed(title: str, name: str, states: Sequence[State]) -> Iterator[str]:
    if states:
        yield f"{title}:"
    for found in states:
        specs = f" [{', '.join(found.specs)}]" if found.specs else ""
        text = found.item.text if len(found.item.text) <= WIDTH else found.item.text[: WIDTH - 1] + "…"
        yield f"  {name}:{found.item.line}  {found.item.kind}{specs}  {text}"


def check(path: Path, root: Path | None, *, as_json: bool, out: TextIO) -> int:
    """What a document says against itself and against its tree, both places each.

    :returns: 0 if it contradicts nothing, else 1.
    """
    if root is not None and not root.is_dir():
        raise UsageError(f"--tree {str(root)!r} is not a folder")
    findings = conflicts(*reading_of(path, root))
    if as_json:
        json.dump([finding.to_json() for finding in findings], out, indent=1, ensure_ascii=False)
        out.write("\n")
    else:
        out.writelines(f"{finding}\n" for finding in findings)
        out.write(f"{path}: {len(findings)} contradictions\n")
    return 1 if findings else 0


def review(
    path: Path,
    catalog: Catalog,
    bindings: Path | None,
    *,
    binds: Mapping[int, tuple[str, ...]],
    to: Path | None,
    out: TextIO,
) -> int:
    """Accept a document as it stands, and say what that changes and where it is written.

    :returns: 0, or 1 if something is still bound to nothing.
    """
    reviewed = review_document(path, catalog.path.parent, catalog.specs, bindings=bindings)
    text = accepted(reviewed, binds, catalog.specs)
    target = to or path.parent / BINDINGS
    _replace(target, text)
    again = review_document(path, catalog.path.parent, catalog.specs, bindings=target)
    drifted, orphans = reviewed.review.drifted, reviewed.review.orphans
    out.write(f"accepted {path} as it is now, written to {target}\n")
    out.writelines(f"  {spec}: was drifted\n" for spec in drifted)
    out.writelines(f"  {spec}: nothing of its text is left, so it is bound to none\n" for spec in orphans)
    left = again.review.in_state(UNCOVERED)
    out.writelines(f"{line}\n" for line in _listed("uncovered", path.name, left))
    if left:
        out.write("bind them with `--bind LINE=SPEC`, or by hand in that file\n")
    return 1 if left else 0


def read_binds(words: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """`LINE=SPEC[,SPEC]`, as often as given.

    :raises UsageError: for anything else.
    """
    found: dict[int, tuple[str, ...]] = {}
    for word in words:
        line, _, specs = word.partition("=")
        if not line.isdecimal() or not specs:
            raise UsageError(f"--bind {word!r} is not LINE=SPEC[,SPEC]")
        found[int(line)] = tuple(spec.strip() for spec in specs.split(","))
    return found


def _replace(target: Path, text: str) -> None:
    """Whole or not at all."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as made:
            made.write(text)
        Path(made.name).chmod(0o644)
        Path(made.name).replace(target)
    except OSError as error:
        raise DocumentError(
            f"{target}: can not be written: {error.strerror}; name a file with --to"
        ) from error
