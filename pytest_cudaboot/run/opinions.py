"""Second opinions: which failed tests are run again at the end of a run, and on which card. It sends nothing itself.

Tests that have broken a gate cell on a card are run again there, in a fresh device process. What fails again and is
bound to no card goes to another one of the same model; what each card has been asked anyhow needs no such question.
A test of several cards goes to the same ones, and then to as many others that were not among them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cudaboot.model import (
    AttemptRecord,
    CellKey,
    Gpu,
    ItemRecord,
    Outcome,
    Place,
    ResultRecord,
    Status,
)
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.rules.cells import culprits, settle
from pytest_cudaboot.rules.opinions import Answer, heard
from pytest_cudaboot.rules.spec import Spec
from pytest_cudaboot.run.again import Again, read_again
from pytest_cudaboot.run.seams import Question

BUDGET = 300.0  # seconds for all of them together
SPENT = "the {0:g} s for second opinions do not suffice: it took {1:.0f} s before"
DIED = "the worker died that was to run it"
CUDA = "cuda"


@dataclass(frozen=True, kw_only=True, slots=True)
class Watchers:
    """Who is told what.

    :param add: gets each attempt, as it ends.
    :param begun: hears of a test that is run again, and by which worker.
    :param ended: hears worker and attempt, and gives the latter back with what was seen of its cards.
    :param hung: says of a worker that died why it was killed, if it was.
    :param problem: hears of a box that contradicts itself.
    """

    add: Callable[[AttemptRecord], None]
    begun: Callable[[str, Question], None]
    ended: Callable[[str, AttemptRecord], AttemptRecord]
    hung: Callable[[str], str | None]
    problem: Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is known of the tests.

    :param results: by node id, what has been reported.
    :param waived: cells that nobody asks about.
    """

    catalog: Catalog | None
    items: Sequence[ItemRecord]
    gpus: Sequence[Gpu]
    results: Mapping[str, ResultRecord]
    waived: Collection[CellKey] = ()


class Opinions:
    """One for each run; indices are positions in the collection.

    :param folder: where workers leave their answers.
    """

    def __init__(
        self,
        asked: Asked,
        watchers: Watchers,
        *,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = asked.catalog
        self._items = asked.items
        self._models = {gpu.uuid: gpu.name for gpu in asked.gpus}
        self._results = asked.results
        self._waived = frozenset(asked.waived)
        self._watchers = watchers
        self._folder = folder
        self._clock = clock
        self._began: float | None = None
        self._numbers = 0
        self._ran: dict[int, tuple[str, ...]] = {}
        self._waiting: list[Question] = []
        self._under_way: dict[int, tuple[Question, str]] = {}
        self._members: dict[CellKey, list[int]] = defaultdict(list)
        self._attempts: dict[CellKey, list[AttemptRecord]] = defaultdict(list)

    @property
    def open(self) -> bool:
        """Whether something was asked, or is to be, that has no answer."""
        return bool(self._waiting or self._under_way)

    def ran(self, index: int, lanes: Sequence[str]) -> None:
        """An item was sent to the worker of a card, and has others as well if it is a gang's."""
        self._ran[index] = tuple(lanes)

    def ask(self, ready: Mapping[str, str], lanes: Collection[str]) -> list[Question]:
        """What is to be run again now; each question goes to its card's worker at once.

        :param ready: cards whose worker is idle, and that worker.
        :param lanes: cards that have a worker, or will have one.
        """
        if self._began is None:
            self._began = self._clock()
            for cell in list(self._broken()):
                self._stage(cell, Place.SAME, lanes)
        held = {lane for question, _ in self._under_way.values() for lane in question.lanes}
        free, sent = {lane: worker for lane, worker in ready.items() if lane not in held}, []
        while question := next((one for one in self._waiting if self._due(one, free, lanes)), None):
            self._waiting.remove(question)
            if why := self._refusal(question, lanes):
                self._close(question, _unanswered(question, why), lanes)
            else:
                worker, *_ = [free.pop(lane) for lane in question.lanes]
                self._under_way[question.number] = question, worker
                self._watchers.begun(worker, question)
                sent.append(question)
        return sent

    def answered(self, number: int, lanes: Collection[str]) -> dict[str, str]:
        """A worker has run the test again, and left its answer.

        :returns: cards that have been set aside meanwhile, and why.
        """
        again = read_again(self._folder, number)
        if again.problem:
            self._watchers.problem(again.problem)
        question, _ = self._under_way[number]
        self._end(number, _attempt(question, again), lanes)
        aside: dict[str, str] = again.result.evidence.get("set_aside", {})
        return aside

    def lost(self, number: int, lanes: Collection[str]) -> None:
        """Its worker died of running it again."""
        question, worker = self._under_way[number]
        hang = self._watchers.hung(worker)
        attempt = AttemptRecord(
            **_where(question),
            status=Status.FAILED if hang else Status.CRASHED,
            cause="hang" if hang else "crash",
            reason=hang or f"worker {worker} died under it",
            worker=worker,
        )
        self._end(number, attempt, lanes)

    def unsent(self, number: int, lanes: Collection[str]) -> None:
        """Its worker had died before it got it, which says nothing of the test."""
        question, _ = self._under_way[number]
        self._end(number, _unanswered(question, DIED), lanes)

    def _end(self, number: int, attempt: AttemptRecord, lanes: Collection[str]) -> None:
        """A question is under way until all is known of it: a card that is set aside for it makes others be asked."""
        question, worker = self._under_way[number]
        attempt = self._watchers.ended(worker, attempt)
        del self._under_way[number]
        self._close(question, attempt, lanes)

    # -- what to ask -------------------------------------------------------------------------------------------

    def _broken(self) -> Iterator[CellKey]:
        """Gate cells that are broken where a card was at work."""
        specs = self._catalog.specs if self._catalog is not None and self._models else {}
        for index, item in enumerate(self._items):
            spec = specs.get(item.spec or "")
            if spec is not None and spec.gate and spec.on != "host":
                self._members[spec.key(item.lowerer, item.gpu)].append(index)
        for cell in self._members:
            if cell not in self._waived and self._culprits(cell):
                yield cell

    def _told(self, cell: CellKey) -> list[ResultRecord]:
        nodeids = (self._items[index].nodeid for index in self._members[cell])
        return [self._results[nodeid] for nodeid in nodeids if nodeid in self._results]

    def _culprits(self, cell: CellKey) -> list[ResultRecord]:
        spec = self._spec(cell)
        told = self._told(cell)
        broken = settle(spec, told, platform=CUDA).outcome is Outcome.BROKEN
        return list(culprits(spec, told)) if broken else []

    def _spec(self, cell: CellKey) -> Spec:
        assert self._catalog is not None  # noqa: S101 - without one there is no cell
        return self._catalog.specs[cell.spec]

    def _stage(self, cell: CellKey, place: Place, lanes: Collection[str]) -> None:
        """Ask of each test that has failed; what takes least is asked first."""
        failed = {result.nodeid: result for result in self._culprits(cell)}
        for index in self._members[cell]:
            nodeid = self._items[index].nodeid
            own = self._ran.get(index)
            if nodeid not in failed or own is None:
                continue
            there = own if place is Place.SAME else self._siblings(own, lanes)
            if there is None:
                continue
            question = Question(
                number=self._numbers,
                index=index,
                nodeid=nodeid,
                cell=cell,
                place=place,
                lanes=there,
                seconds=failed[nodeid].seconds,
            )
            self._numbers += 1
            self._waiting.append(question)
        self._waiting.sort(key=lambda question: question.seconds)

    def _siblings(self, own: Sequence[str], lanes: Collection[str]) -> tuple[str, ...] | None:
        """As many other cards of the same models, those that are asked least so far; None if there are not enough."""
        asked = [lane for question in self._waiting for lane in question.lanes]
        others = sorted((uuid for uuid in lanes if uuid not in own), key=asked.count)
        found: list[str] = []
        for model in map(self._models.get, own):
            alike = (uuid for uuid in others if uuid not in found and self._models.get(uuid) == model)
            found += [next(alike, "")]
        return tuple(found) if all(found) else None

    def _due(self, question: Question, free: Collection[str], lanes: Collection[str]) -> bool:
        return set(question.lanes) <= set(free) or bool(self._refusal(question, lanes))

    def _refusal(self, question: Question, lanes: Collection[str]) -> str | None:
        """Why a question is not asked, or None."""
        assert self._began is not None  # noqa: S101 - questions are made after that
        if gone := [lane for lane in question.lanes if lane not in lanes]:
            return f"no worker for {gone[0]!r}"
        spent = self._clock() - self._began + question.seconds > BUDGET
        return SPENT.format(BUDGET, question.seconds) if spent else None

    def _close(self, question: Question, attempt: AttemptRecord, lanes: Collection[str]) -> None:
        """Write an attempt down; when all have spoken that were asked on the own card, think of a sibling."""
        cell = question.cell
        self._attempts[cell].append(attempt)
        self._watchers.add(attempt)
        still = [*self._waiting, *(asked for asked, _ in self._under_way.values())]
        if question.place is Place.SIBLING or cell.gpu is not None or any(one.cell == cell for one in still):
            return
        attempts = self._attempts[cell]
        same = heard(self._spec(cell), self._told(cell), attempts, Place.SAME, platform=CUDA)
        if same in (Answer.FAILS, Answer.NONE):
            self._stage(cell, Place.SIBLING, lanes)


def _where(question: Question) -> dict[str, Any]:
    """What an attempt has of its question."""
    lead, *partners = question.lanes
    return {"nodeid": question.nodeid, "place": question.place, "card": lead, "partners": tuple(partners)}


def _unanswered(question: Question, why: str) -> AttemptRecord:
    return AttemptRecord(**_where(question), status=Status.SKIPPED, reason=why)


def _attempt(question: Question, again: Again) -> AttemptRecord:
    result = again.result
    return AttemptRecord(
        **_where(question),
        status=result.status,
        cause=result.cause,
        reason=result.reason,
        platform=result.platform,
        gpus=result.gpus,
        seconds=result.seconds,
        worker=result.worker,
        evidence=result.evidence,
    )
