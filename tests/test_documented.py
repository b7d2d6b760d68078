"""What a user is offered stands in the documents: every fixture has its line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def fixtures() -> Iterator[str]:
    """The names that a test may ask for; those with an underscore are ours."""
    for path in sorted((ROOT / "pytest_cudaboot" / "run").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any(
                "pytest.fixture" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                yield node.name


OFFERED = [name for name in fixtures() if not name.startswith("_")]


@pytest.mark.parametrize("name", OFFERED)
def test_a_fixture_has_its_line(name: str) -> None:
    rows = [line for line in (ROOT / "docs/fixtures.md").read_text().splitlines() if line.startswith("| `")]

    assert any(f"`{name}`" in row.split("|")[1] for row in rows), f"docs/fixtures.md has no row for {name!r}"


def test_they_are_found() -> None:
    assert {"gpu", "lowerer", "canary", "iree_tree"} <= set(OFFERED)
