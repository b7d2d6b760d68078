"""A spec that takes a part which only some checkouts have is under the condition that names the part."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from pathlib import Path

import pytest

from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.catalog import load_catalog

SUITE = suite_root() / "acceptance"
CATALOG = load_catalog(SUITE / "catalog.toml")
# What a test or one of its fixtures names, and the condition that it then is under.
TAKES = {
    "trainer_program": "trainer",
    "net: Net": "oracle",
    "pjrt_shim": "shim",
    "plainest_net": "graphs",
    "document_text": "document",
    ".unproved": "artifacts",
}
# Other conditions that say as much.
IMPLIES = {
    "oracle": {"graphs"},
    "renderer": {"oracle", "graphs"},
    "trainer": {"shim"},
    "artifacts": {"graphs"},
}


def names_in(node: ast.AST) -> set[str]:
    """Every name that a piece of code uses or takes."""
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    taken = [inner for inner in ast.walk(node) if isinstance(inner, ast.arg)]
    found |= {inner.arg for inner in taken}
    found |= {f"{inner.arg}: {ast.unparse(inner.annotation)}" for inner in taken if inner.annotation}
    return found | {f".{inner.attr}" for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def definitions(path: Path) -> dict[str, ast.AST]:
    nodes = ast.parse(path.read_text()).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def spec_of(node: ast.AST, default: str | None) -> str | None:
    """The spec in a mark."""
    marks = [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "spec"
    ]
    return str(ast.literal_eval(marks[0].args[0])) if marks else default


def module_mark(path: Path) -> str | None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return spec_of(node, None)
    return None


@functools.cache
def taken() -> dict[str, set[str]]:
    """For each spec everything that its tests name, through fixtures and helpers too."""
    helpers = [path for path in SUITE.glob("*.py") if not path.name.startswith("test_")]
    shared = {name: node for path in helpers for name, node in definitions(path).items()}
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SUITE.glob("test_*.py")):
        own = definitions(path)
        known = shared | own
        for name, node in own.items():
            spec = spec_of(node, module_mark(path))
            if not name.startswith("test_") or spec is None:
                continue
            todo, seen = names_in(node), set()
            while todo:
                seen.add(word := todo.pop())
                todo |= names_in(known[word]) - seen if word in known else set()
            found[spec] |= seen
    return found


def conditions(spec: str) -> set[str]:
    """A spec's own conditions and those of its prerequisites, since what takes these away takes it away."""
    told = set(CATALOG.specs[spec].when).union(*map(conditions, CATALOG.specs[spec].needs), set())
    return told.union(*(IMPLIES.get(name, set()) for name in told), set())


@pytest.mark.parametrize("part", TAKES)
def test_a_spec_that_takes_it_says_so(part: str) -> None:
    wanted = TAKES[part]
    takers = [spec for spec, names in taken().items() if part in names]

    bare = [spec for spec in takers if wanted not in conditions(spec)]

    assert takers
    assert bare == [], f"these take {part!r}, and are not under {wanted!r}"
