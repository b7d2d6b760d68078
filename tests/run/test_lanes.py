"""Where a test of nobody's catalogue runs: beside a card only what opens one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cudaboot.run import fixtures
from pytest_cudaboot.run.items import DEVICE_FIXTURES, lane_of
from pytest_cudaboot.run.lanes import CARD, HOST


@pytest.mark.parametrize(
    ("names", "lane"),
    [
        (["gpu"], CARD),
        (["open_lowerer", "load"], CARD),
        (["session", "lowerer", "open_lowerer"], CARD),
        (["run", "project"], HOST),
        ([], HOST),
    ],
)
def test_a_test_without_a_spec(names: list[str], lane: str) -> None:
    item: Any = SimpleNamespace(fixturenames=names)
    plan: Any = SimpleNamespace(platform="cuda")

    assert lane_of(item, plan, None) == lane


def test_the_fixtures_are_there() -> None:
    assert all(hasattr(fixtures, name) for name in DEVICE_FIXTURES)
