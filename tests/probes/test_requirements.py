"""What `pyproject.toml` asks for against what the package imports and the CUDA libraries that it knows."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pytest_cudaboot
from pytest_cudaboot.rules.cuda_libraries import cuda_libraries

PACKAGE = Path(pytest_cudaboot.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
BROUGHT_AS = {
    "pynvml": "nvidia-ml-py",
    "elftools": "pyelftools",
    "xdist": "pytest-xdist",
    "markdown_it": "markdown-it-py",
    "_pytest": "pytest",
}


def imported(path: Path) -> Iterator[str]:
    """Names of the packages that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_what_is_imported_is_required_and_the_reverse() -> None:
    names = {name for path in PACKAGE.rglob("*.py") if "_suite" not in path.parts for name in imported(path)}
    foreign = names - set(sys.stdlib_module_names) - {PACKAGE.name, "acceptance"}

    required = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert {BROUGHT_AS.get(name, name) for name in foreign} == required


@pytest.mark.parametrize("major", [12, 13])
def test_an_extra_brings_the_plugin_and_what_it_needs(major: int) -> None:
    needed = {library.package for library in cuda_libraries(major) if library.needed}

    assert set(EXTRAS[f"cuda{major}"]) == {f"jax-cuda{major}-pjrt", *needed}
