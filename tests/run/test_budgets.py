"""How long a test may take: what is remembered ends a hang sooner, and never makes one of what is merely slow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.model import CellKey, Status
from pytest_cudaboot.rules.catalog import Catalog, load_catalog
from pytest_cudaboot.run.budgets import DEFAULT, FLOOR, Budgets, budget
from pytest_cudaboot.run.memory import Memory
from tests.rules.builders import result, run_record

CATALOG = '[a.b]\nkind = "step"\ntitle = "T"\nheading = "H"\nbudget = 300\n'


@pytest.mark.parametrize(
    ("listed", "remembered", "expected"),
    [
        pytest.param(300, None, 300, id="a first run compiles everything"),
        pytest.param(300, 0.2, FLOOR, id="never below the floor"),
        pytest.param(30, 0.2, 30, id="a floor is no reason to wait longer than the catalogue"),
        pytest.param(300, 12, 120, id="a hang is known sooner"),
        pytest.param(300, 50, 300, id="the catalogue still counts"),
        pytest.param(300, 200, 600, id="what is slow here is slow here"),
    ],
)
def test_what_was_seen_bounds_what_may_be(listed: float, remembered: float | None, expected: float) -> None:
    assert budget(listed, remembered) == expected


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "catalog.toml").write_text(CATALOG)
    return load_catalog(tmp_path / "catalog.toml")


def test_a_spec_is_remembered_with_its_lowerer(catalog: Catalog) -> None:
    budgets = Budgets(catalog, {"a.b·xla": 12.0, "a.b": 13.0})

    assert (budgets.of("a.b", "xla"), budgets.of("a.b"), budgets.of("a.b", "iree")) == (120.0, 130.0, 300.0)


def test_a_users_own_test_has_the_default(catalog: Catalog) -> None:
    assert Budgets(catalog).of(None) == Budgets(catalog).of("no.such") == Budgets(None).of("a.b") == DEFAULT


class Kept:
    """A history in a dict."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, ...], float] = {}

    def longest(self, keys: Iterable[tuple[str, ...]]) -> float | None:
        return max((self.seen[key] for key in keys if key in self.seen), default=None)

    def learn(self, durations: Mapping[tuple[str, ...], float]) -> str | None:
        self.seen.update(durations)
        return None


def test_the_longest_that_ended_well_is_remembered(catalog: Catalog) -> None:
    memory = Memory(Kept(), run_record(catalog))
    memory.learn(
        [
            result("a.b", lowerer="xla", seconds=2.0),
            result("a.b", lowerer="xla", role="control", seconds=5.0),
            result("a.b", Status.FAILED, lowerer="xla", seconds=100.0),
        ]
    )

    assert memory.recall([CellKey("a.b", "xla"), CellKey("a.b", "iree")]) == {"a.b·xla": 5.0}


@pytest.mark.parametrize(
    "bump",
    [
        {"toolchain": {"plugin": "2"}},
        {"box": {"driver": "580"}},
        {"platform": "cuda"},
        {"project": {"name": "other"}},
    ],
)
def test_nothing_is_remembered_across_a_bump(catalog: Catalog, bump: dict[str, Any]) -> None:
    kept = Kept()
    Memory(kept, run_record(catalog)).learn([result("a.b", seconds=2.0)])

    assert Memory(kept, run_record(catalog)).recall([CellKey("a.b")]) == {"a.b": 2.0}
    assert Memory(kept, run_record(catalog, **bump)).recall([CellKey("a.b")]) == {}
