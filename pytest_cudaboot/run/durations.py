"""What each test of a run is expected to take, and what it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from pytest_cudaboot.model import ItemRecord, ResultRecord, Status
from pytest_cudaboot.probes.history import History
from pytest_cudaboot.run.budgets import Budgets
from pytest_cudaboot.run.items import Task

PRIOR = 0.1  # of its budget, for a test that nobody has seen, where no other one tells
LEAST = 0.5  # seconds; what is shorter is not told apart, so that noise does not shuffle short tests


class Durations:
    """One for each run.

    :param budgets: the catalogue's word, which is all there is of a test that was never seen.
    """

    def __init__(self, history: History, budgets: Budgets) -> None:
        self._history = history
        self._budgets = budgets
        self._keys: dict[str, tuple[str, ...]] = {}

    @property
    def complaint(self) -> str | None:
        """Why nothing is remembered, or None."""
        return self._history.complaint

    def expect(self, items: Sequence[ItemRecord], tasks: Sequence[Task]) -> tuple[Task, ...]:
        """The tasks with their seconds: as before, or else by its budget, as the budgets of the others turned out."""
        self._keys = {item.nodeid: task.key for item, task in zip(items, tasks, strict=True) if task.key}
        known = [self._history.typical(task.key) if task.key else None for task in tasks]
        budgets = [self._budgets.of(item.spec, item.lowerer) for item in items]
        shares = [seen / budget for seen, budget in zip(known, budgets, strict=True) if seen is not None]
        prior = median(shares) if shares else PRIOR
        return tuple(
            replace(task, seconds=max(LEAST, budget * prior if seen is None else seen))
            for task, seen, budget in zip(tasks, known, budgets, strict=True)
        )

    def learn(self, results: Iterable[ResultRecord]) -> str | None:
        """Remember what ended well; what failed may have ended early, or hung.

        :returns: why that was not possible, or None.
        """
        seen: Mapping[tuple[str, ...], float] = {
            self._keys[result.nodeid]: result.seconds
            for result in results
            if result.status is Status.PASSED and result.nodeid in self._keys
        }
        return self._history.learn(seen)
