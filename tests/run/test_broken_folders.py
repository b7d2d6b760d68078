"""The folders of broken cells are those of the last run, and nothing of anybody else's is removed."""

from __future__ import annotations

import pytest

from tests.run.gate import WORKS, Gate

TESTS = """
import os, pytest
@pytest.mark.spec("a.works")
def test_works(measure):
    measure(figure=1)
    assert "WELL" in os.environ
"""


def test_the_next_run_withdraws_them(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.suite(TESTS, WORKS)
    (gate.out / "broken" / "somebody's").mkdir(parents=True)
    gate.here()
    left = sorted(path.name for path in (gate.out / "broken").iterdir())
    monkeypatch.setenv("WELL", "1")
    gate.here()

    assert left == ["a.works", "somebody's"]
    assert [path.name for path in (gate.out / "broken").iterdir()] == ["somebody's"]
