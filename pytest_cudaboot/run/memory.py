"""What specs took before under this very toolchain: read once, by the controller, so that all processes have one word."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Protocol

from pytest_cudaboot.model import CellKey, ResultRecord, RunRecord, Status
from pytest_cudaboot.run.budgets import name_of

Key = tuple[str, ...]


class History(Protocol):
    """Where durations are kept between runs."""

    def longest(self, keys: Iterable[Key]) -> float | None:
        """Seconds that any of these took at most, or None."""

    def learn(self, durations: Mapping[Key, float]) -> str | None:
        """Add what was seen; why that could not be, or None."""


class Memory:
    """The longest that each spec took, by what must be the same for that to mean anything.

    :param record: whatever it says of toolchain, driver and cards is part of the key: after a bump nothing is
        remembered, since then everything is compiled for the first time. Of another project or catalogue neither.
    """

    def __init__(self, history: History, record: RunRecord) -> None:
        self._history = history
        cards = sorted({gpu.name for gpu in record.gpus})
        whose = [record.project.get("name"), record.catalog.get("sha256")]
        facts = [*whose, record.platform, cards, record.box.get("driver"), record.toolchain]
        text = json.dumps(facts, sort_keys=True, default=str)
        self._toolchain = hashlib.sha256(text.encode()).hexdigest()[:16]

    def recall(self, cells: Iterable[CellKey]) -> dict[str, float]:
        """Seconds by the name of spec and lowerer, for those that were seen."""
        names = dict.fromkeys(name_of(cell.spec, cell.lowerer) for cell in cells)
        seen = {name: self._history.longest([self._key(name)]) for name in names}
        return {name: seconds for name, seconds in seen.items() if seconds is not None}

    def learn(self, results: Iterable[ResultRecord]) -> str | None:
        """Remember what ended well: what failed may have ended early, or hung.

        :returns: why that was not possible, or None.
        """
        longest: dict[Key, float] = {}
        for result in results:
            if result.spec is not None and result.status is Status.PASSED:
                key = self._key(name_of(result.spec, result.lowerer))
                longest[key] = max(longest.get(key, 0.0), result.seconds)
        return self._history.learn(longest)

    def _key(self, name: str) -> Key:
        return ("budget", self._toolchain, name)
