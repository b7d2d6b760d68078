"""Jobs and lanes for tests of the plan."""

from __future__ import annotations

from pytest_cudaboot.rules.timetable import CARD, Job, Lane

TWO = [Lane(name="A", serves="A"), Lane(name="B", serves="B")]


def card(seconds: float, *after: int, cards: int = 1, lane: str = CARD, warm: str | None = None) -> Job:
    """A job on any card, unless a lane is named."""
    return Job(lane=lane, cards=cards, seconds=seconds, warm=warm, after=frozenset(after))
