"""How long a test may take: what is remembered ends a hang sooner, and never makes one of what is merely slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.run.budgets import DEFAULT, FLOOR, Budgets, budget

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
def asked() -> list[str]:
    return []


@pytest.fixture
def budgets(tmp_path: Path, asked: list[str]) -> Budgets:
    (tmp_path / "catalog.toml").write_text(CATALOG)

    def expected(name: str) -> float:
        asked.append(name)
        return 12.0

    return Budgets(load_catalog(tmp_path / "catalog.toml"), expected)


def test_a_spec_is_remembered_with_its_lowerer(budgets: Budgets, asked: list[str]) -> None:
    assert (budgets.of("a.b", "xla"), budgets.of("a.b")) == (120.0, 120.0)
    assert asked == ["a.b·xla", "a.b"]


def test_a_users_own_test_has_the_default(budgets: Budgets) -> None:
    assert budgets.of(None) == budgets.of("no.such") == Budgets(None).of("a.b") == DEFAULT
