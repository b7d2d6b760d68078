"""Everything that is known of one spec: what it checks, why, from which sentence, and what to do when it is red."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TextIO

from pytest_cudaboot.rules.catalog import Catalog, Spec
from pytest_cudaboot.rules.document_review import review_document
from pytest_cudaboot.rules.incidents import Incident, load_incidents

INCIDENTS = "incidents.toml"
WIDEST = 110
BY_KIND = {
    "step": "follow the text by hand where it fails: what the gate did is in the failure, as a line to paste",
    "claim": "nothing is broken: it is measured and shown, and never decides",
    "consistency": "the document is wrong, or what it is held against: both places are in the failure",
}
GOTCHA = (
    "a red check: the workaround no longer works",
    "a red canary: what is guarded against is not refused any more, or not in the documented way",
)
BY_CANARY = {
    "upstream": "`expired`: upstream is mended, so the workaround and its text can go",
    "guard": "a silent canary is broken: a guard that no longer fires guards nothing",
}
BY_TRACK = {
    "box": "first look at the box (`cudaboot doctor`), then at the toolchain",
    "document": "it decides nothing unless `--cudaboot-tracks` has `document`",
    "proofs": "it decides nothing unless `--cudaboot-tracks` has `proofs`",
}


def explain(spec: Spec, catalog: Catalog, document: Path | None, out: TextIO) -> int:
    """Print it.

    :param document: the bring-up document whose sentences are told, or null.
    """
    for name, value in _facts(spec, catalog):
        if value:
            out.write(f"{name:>9}  {value}\n")
    for name, values in _reasons(spec, catalog, document):
        for number, value in enumerate(values):
            out.write(f"{name if number == 0 else '':>9}  {value}\n")
    return 0


def _facts(spec: Spec, catalog: Catalog) -> Iterator[tuple[str, str]]:
    dependents = [other.id for other in catalog.specs.values() if spec.id in other.needs]
    canary = f" ({spec.canary} canary)" if spec.canary else ""
    yield "spec", spec.id
    yield "title", spec.title
    yield "kind", spec.kind + canary + ("" if spec.gate else ", decides nothing")
    yield "heading", spec.heading
    yield "track", spec.track
    yield "runs on", spec.on
    yield "lowerers", ", ".join(spec.lowerers) + (" (a pair)" if spec.pair else "")
    yield "needs", ", ".join(spec.needs)
    yield "needed by", ", ".join(dependents)
    yield "in scope", _condition(spec)
    yield "budget", f"{spec.budget:g} s"
    yield "may be", ", ".join(spec.may)
    yield "upstream", ", ".join(spec.upstream)
    yield "tests", ", ".join(path.name for path in _tests(spec.id, catalog.path.parent))


def _reasons(spec: Spec, catalog: Catalog, document: Path | None) -> Iterator[tuple[str, list[str]]]:
    folder = catalog.path.parent
    incidents = [found for found in _incidents(folder / INCIDENTS) if spec.id in found.specs]
    yield "checks", [short for path in _tests(spec.id, folder) for short in _checks(path, spec.id)]
    yield "encodes", _sentences(spec, catalog, document) if document is not None else []
    yield "because", [f"{found.id}: {found.what}" for found in incidents]
    yield "if red", [*_remedies(spec, incidents), _again(spec, folder)]


def _condition(spec: Spec) -> str:
    if spec.uncheckable:
        return "never: uncheckable"
    return f"with {', '.join(spec.when)}" if spec.when else "always"


def _incidents(path: Path) -> tuple[Incident, ...]:
    return load_incidents(path) if path.is_file() else ()


def _sentences(spec: Spec, catalog: Catalog, document: Path) -> list[str]:
    """What the document says of it, with the lines, and whether that has changed."""
    reviewed = review_document(document, catalog.path.parent, catalog.specs)
    bound = [found for found in reviewed.review.states if spec.id in found.specs]
    return [
        _short(f"{document.name}:{found.item.line} {_note(found.state)}{found.item.text}") for found in bound
    ]


def _note(state: str) -> str:
    return "(changed since) " if state == "drifted" else ""


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _remedies(spec: Spec, incidents: list[Incident]) -> Iterator[str]:
    yield from dict.fromkeys(found.fix for found in incidents)
    yield from GOTCHA if spec.kind == "gotcha" else (BY_KIND[spec.kind],)
    if spec.canary:
        yield BY_CANARY[spec.canary]
    if spec.track in BY_TRACK:
        yield BY_TRACK[spec.track]
    if spec.needs:
        yield f"`blocked`: {', '.join(spec.needs)} comes first"


def _again(spec: Spec, folder: Path) -> str:
    """The shortest line that runs it again; it proves one spec and no toolchain."""
    cards = next((name for name in spec.when if name.startswith("gpu")), None)
    gpus = "none" if cards is None and spec.on == "host" else "auto"
    wanted = [name for name in spec.when if name in ("net", "long", "exclusive")]
    require = f" --cudaboot-require {','.join(wanted)}" if wanted else ""
    files = " ".join(f"{folder.name or '.'}/{path.name}" for path in _tests(spec.id, folder))
    return f"alone: pytest --gpus {gpus}{require} {files or '(no test yet)'}"


def _tests(ident: str, folder: Path) -> list[Path]:
    """The files beside the catalogue in which a mark names the spec; they are read, never imported."""
    return [path for path in sorted(folder.glob("test_*.py")) if ident in _marked(_parsed(path))]


@cache
def _parsed(path: Path) -> ast.Module:
    """A file of tests; a suite does not change while it is explained."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _checks(path: Path, ident: str) -> Iterator[str]:
    """The names of its tests as sentences, with the role of those that are not plain checks."""
    for node in _parsed(path).body:
        if isinstance(node, ast.FunctionDef):
            marks = [mark for mark in node.decorator_list if ident in _marked(mark)]
            if marks:
                role = next((word for mark in marks for word in _roles(mark)), None)
                words = node.name.removeprefix("test_").replace("_", " ")
                yield f"{words} ({role})" if role else words


def _roles(mark: ast.expr) -> Iterator[str]:
    for node in ast.walk(mark):
        if isinstance(node, ast.keyword) and node.arg == "role" and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def _marked(tree: ast.AST) -> set[object]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    marks = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "spec")
    return {word.value for call in marks for word in call.args if isinstance(word, ast.Constant)}
