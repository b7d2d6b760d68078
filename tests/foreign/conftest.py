"""The gate over checkouts that are not the reference's, with a few specs of its own suite."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.project import suite_root
from tests.foreign.checkout import make
from tests.run.conftest import gate  # noqa: F401 - a fixture
from tests.run.gate import Gate

SUITE = suite_root() / "acceptance"
MARK = re.compile(r'spec\("([^"]+)"')


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The checkout of another house."""
    return make(tmp_path / "other")


@pytest.fixture
def suite(gate: Gate) -> Callable[..., Gate]:  # noqa: F811 - the fixture from above
    """A function that copies files of the acceptance suite beside the specs of the catalogue that they test."""

    def copy(*names: str) -> Gate:
        folder = gate.path / "chosen"
        folder.mkdir()
        shared = [path.name for path in SUITE.glob("*.py") if not path.name.startswith("test_")]
        for name in (*shared, *names):
            shutil.copy2(SUITE / name, folder)
        idents = {ident for name in names for ident in MARK.findall((SUITE / name).read_text())}
        tables = re.split(r"(?m)^(?=\[)", (SUITE / "catalog.toml").read_text())
        chosen = [table for table in tables if re.match(r"\[([^\]]+)\]", table) and name_of(table) in idents]
        (folder / "catalog.toml").write_text("".join(without_strangers(table, idents) for table in chosen))
        (gate.path / "catalog.toml").write_text((folder / "catalog.toml").read_text())
        (gate.path / "pytest.ini").write_text("[pytest]\n")
        return gate

    return copy


def name_of(table: str) -> str:
    """A table's spec."""
    return table[1 : table.index("]")]


def without_strangers(table: str, idents: set[str]) -> str:
    """A table whose prerequisites are all there."""

    def kept(match: re.Match[str]) -> str:
        needs = [f'"{need}"' for need in re.findall(r'"([^"]+)"', match[1]) if need in idents]
        return f"needs = [{', '.join(needs)}]"

    return re.sub(r"(?m)^needs = \[(.*)\]$", kept, table)
