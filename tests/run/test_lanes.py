"""Where a test of nobody's catalogue runs, beside a card only what may touch it; and what a test leaves warm there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cudaboot.model import CellKey
from pytest_cudaboot.rules.timetable import NOTHING
from pytest_cudaboot.run import fixtures
from pytest_cudaboot.run.items import CELL, DEVICE_FIXTURES, lane_of, tasks_of
from pytest_cudaboot.run.lanes import CARD, HOST

BESIDE_CARDS: Any = SimpleNamespace(platform="cuda")


@pytest.mark.parametrize(
    ("names", "lane"),
    [
        (["gpu"], CARD),
        (["open_lowerer", "load"], CARD),
        (["session", "lowerer", "open_lowerer"], CARD),
        (["run", "project"], CARD),
        (["project", "pjrt_shim"], HOST),
        ([], HOST),
    ],
)
def test_a_test_without_a_spec(names: list[str], lane: str) -> None:
    item: Any = SimpleNamespace(fixturenames=names)

    assert lane_of(item, BESIDE_CARDS, None) == lane


@pytest.mark.parametrize(
    ("names", "lowerer", "warm"),
    [
        (["lowerer", "open_lowerer"], "iree", "iree"),
        (["lowerer", "open_lowerer"], None, "xla"),
        (["open_lowerer", "load"], "iree", "iree"),
        (["open_lowerer", "load"], None, NOTHING),  # it may open several
        (["run"], "xla", NOTHING),
        (["gpu"], "xla", None),
        (["project"], "xla", None),
    ],
)
def test_what_a_test_leaves_warm(names: list[str], lowerer: str | None, warm: str | None) -> None:
    cell = CellKey("a.b", lowerer)
    item: Any = SimpleNamespace(fixturenames=names, callspec=SimpleNamespace(params={CELL: cell}))

    (task,) = tasks_of([item], BESIDE_CARDS, None)

    assert task.warm == warm


def test_the_fixtures_are_there() -> None:
    assert all(hasattr(fixtures, name) for name in DEVICE_FIXTURES)
