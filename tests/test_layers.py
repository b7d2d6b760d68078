"""Imports go down only, and each outside thing has one module."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_cudaboot

PACKAGE = Path(pytest_cudaboot.__file__).parent
LAYERS = (
    ("errors", "model", "hookspecs", "__init__"),
    ("rules",),
    ("probes",),
    ("lowerers", "device", "project"),
    ("run", "report"),
    ("faults",),
    ("plugin", "cli"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ONLY = {
    "pynvml": {"probes/nvml.py", "probes/counters.py"},
    "subprocess": {"probes/process.py"},
    "elftools": {"probes/elf.py"},
    "pytest": {"run", "report", "plugin.py", "faults/plugin.py"},
    "xdist": {"run/scheduler.py"},
    "cffi": {"lowerers/shim.py"},
    "markdown_it": {"rules/document.py", "rules/document_inline.py"},
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_suite" not in path.parts)


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Everything in a module's tree; a module is read once, and looked at many times."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    """Dotted names of everything that a module imports, wherever in it."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name: str) -> str:
    """The part of the package that a dotted name or a file belongs to."""
    return name.split(".")[1] if "." in name else "__init__"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    upward = [
        name
        for name in imported(path)
        if name.startswith("pytest_cudaboot.") and LEVEL.get(room(name), 0) > LEVEL.get(own, 0)
    ]

    assert own in LEVEL or own == "_suite"
    assert upward == []


def test_each_outside_thing_has_its_modules() -> None:
    for thing, allowed in ONLY.items():
        users = {
            str(path.relative_to(PACKAGE))
            for path in MODULES
            if any(name.partition(".")[0] == thing for name in imported(path))
        }
        assert {user for user in users if not {user, user.partition("/")[0]} & allowed} == set(), thing
        assert users, thing


def test_the_environment_is_read_where_a_process_begins_alone() -> None:
    readers = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        for node in nodes(path)
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("environ", "getenv")
            and ast.unparse(node.value) == "os"
        )
    }

    assert readers == {"plugin.py", "cli.py"}


def test_nobody_imports_the_hooks_and_no_lowerer_knows_another() -> None:
    for path in MODULES:
        names = list(imported(path))
        assert not [name for name in names if name.startswith("pytest_cudaboot.plugin")]
        if path.parent.name == "lowerers" and path.stem in ("xla", "iree"):
            other = {"xla": "iree", "iree": "xla"}[path.stem]
            assert not [name for name in names if name.startswith(f"pytest_cudaboot.lowerers.{other}")]
