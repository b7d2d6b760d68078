"""Which test may go, by the bring-up graph: what waits for a prerequisite, and what one has blocked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from pytest_cudaboot.model import BlockedRecord, CellKey, ItemRecord, Outcome, StartRecord
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.rules.cells import Graph, Readiness, settle, stopped_by
from pytest_cudaboot.rules.timetable import Job
from pytest_cudaboot.run.items import Task
from pytest_cudaboot.run.ledger import Results
from pytest_cudaboot.run.opinions import Opinions


class CellBoard:
    """The state of all cells while the run is on; indices are positions in the collection.

    :param tasks: what it takes to run each item.
    :param tell: hears of each test that is sent to a worker or stopped for good.
    :param panel: who is asked for second opinions.
    :param waived: what a waiver covers lets what needs it go on, whatever became of it.
    """

    def __init__(  # noqa: PLR0913 - the parts of a run that it brings together
        self,
        catalog: Catalog | None,
        cells: Collection[CellKey],
        items: Sequence[ItemRecord],
        tasks: Sequence[Task],
        *,
        tell: Callable[[StartRecord | BlockedRecord], None],
        results: Results,
        panel: Opinions,
        waived: Collection[CellKey] = (),
    ) -> None:
        self._specs = catalog.specs if catalog is not None else {}
        self._graph = Graph.over(catalog, cells) if catalog is not None else Graph(edges={})
        self._tasks = tasks
        self._tell = tell
        self._results = results
        self.panel = panel
        self._waived = frozenset(waived)
        self._nodeids = [item.nodeid for item in items]
        self._cells = [self._cell(item) for item in items]
        self._members: dict[CellKey, list[int]] = defaultdict(list)
        for index, cell in enumerate(self._cells):
            if cell is not None:
                self._members[cell].append(index)
        self._open = {cell: set(members) for cell, members in self._members.items()}
        self._outcomes: dict[CellKey, Outcome | None] = dict.fromkeys(self._members)
        self._stopped: dict[int, BlockedRecord] = {}

    def jobs(self) -> list[Job]:
        """The items as the dispatch sees them."""
        return [
            Job(
                lane=task.lane,
                cards=task.cards,
                seconds=task.seconds,
                warm=task.warm,
                after=self._after(index),
            )
            for index, task in enumerate(self._tasks)
        ]

    def lane(self, index: int) -> str:
        """`host`, `card`, or the card that the item is bound to."""
        return self._tasks[index].lane

    def cards(self, index: int) -> int:
        return self._tasks[index].cards

    def waits(self, index: int) -> bool:
        return self._readiness(index).waits

    def blocked(self, index: int) -> bool:
        root = self._readiness(index).by
        if root is None:
            return False
        reason = stopped_by(root, self._outcomes[root])
        self._stop(index, BlockedRecord(nodeid=self._nodeids[index], by=root.spec, reason=reason))
        return True

    def impossible(self, index: int, reason: str) -> None:
        self._stop(index, BlockedRecord(nodeid=self._nodeids[index], by=None, reason=reason))

    def sent(self, index: int, worker: str, lanes: Sequence[str]) -> None:
        self.panel.ran(index, lanes)
        self._tell(StartRecord(nodeid=self._nodeids[index], worker=worker))

    def closed(self, index: int) -> None:
        cell = self._cells[index]
        if cell is None:
            return
        self._open[cell].discard(index)
        if not self._open[cell]:
            self._outcomes[cell] = self._settle(cell)

    def _after(self, index: int) -> frozenset[int]:
        cell = self._cells[index]
        needs = self._graph.prerequisites(cell) if cell is not None else ()
        return frozenset(member for need in needs for member in self._members.get(need, ()))

    def _cell(self, item: ItemRecord) -> CellKey | None:
        """The planned cell of an item, if it has one: what is unplanned waits for nothing."""
        spec = self._specs.get(item.spec) if item.spec is not None else None
        cell = spec.key(item.lowerer, item.gpu) if spec is not None else None
        return cell if cell in self._graph.edges else None

    def _readiness(self, index: int) -> Readiness:
        cell = self._cells[index]
        return self._graph.readiness(cell, self._outcomes) if cell is not None else Readiness()

    def _stop(self, index: int, record: BlockedRecord) -> None:
        self._stopped[index] = record
        self._tell(record)
        self.closed(index)

    def _settle(self, cell: CellKey) -> Outcome:
        if cell in self._waived:
            return Outcome.WAIVED
        members = self._members[cell]
        done = self._results.done
        return settle(
            self._specs[cell.spec],
            [done[self._nodeids[index]] for index in members if self._nodeids[index] in done],
            [self._stopped[index] for index in members if index in self._stopped],
        ).outcome
