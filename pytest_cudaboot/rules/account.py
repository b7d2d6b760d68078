"""The ledger's records, sorted by what they speak about, and each planned cell settled from them. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, TypeVar

from pytest_cudaboot.model import (
    AttemptRecord,
    BlockedRecord,
    CellKey,
    EndRecord,
    HardwareRecord,
    ItemRecord,
    Outcome,
    Place,
    PlanRecord,
    ProblemRecord,
    Record,
    ResultRecord,
    RunRecord,
    StartRecord,
    Status,
)
from pytest_cudaboot.rules.cells import Graph, Settled, culprits, settle, stopped_by
from pytest_cudaboot.rules.opinions import Answer, against, allows, blame, heard, in_words, merged, peers
from pytest_cudaboot.rules.scope import Scope, plan
from pytest_cudaboot.rules.waivers import Waiver, find_waiver, waived_cells

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_cudaboot.rules.catalog import Catalog
    from pytest_cudaboot.rules.spec import Spec

_R = TypeVar("_R", bound=Record)
_EXCUSABLE = (Outcome.BROKEN, Outcome.BLOCKED, Outcome.NOT_RUN, Outcome.UNSUPPORTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A ledger, sorted.

    :param plans: how many lines say what was planned.
    :param planned: what the plan says, and what the catalogue says that it ought to say.
    :param lost: node ids of tests that were collected or started and gave no result.
    """

    run: RunRecord
    runs: int
    plans: int
    planned: tuple[CellKey, ...]
    items: tuple[ItemRecord, ...]
    started: frozenset[str]
    results: tuple[ResultRecord, ...]
    attempts: tuple[AttemptRecord, ...]
    blocked: tuple[BlockedRecord, ...]
    problems: tuple[ProblemRecord, ...]
    hardware: tuple[HardwareRecord, ...]
    end: EndRecord | None
    lost: tuple[str, ...]

    @property
    def today(self) -> date:
        """The day of the run: a replayed ledger is judged by its own waivers' day."""
        return datetime.fromisoformat(self.run.started).date()

    @property
    def waivers(self) -> tuple[Waiver, ...]:
        return tuple(Waiver.from_json(entry) for entry in self.run.waivers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A planned cell, judged.

    :param would_be: the judgement without the waiver, where there is one.
    :param left_out: no collected test speaks for it.
    :param reported: a test of it ended, or was stopped with a reason.
    :param attempts: what its failed tests did when they were run again.
    :param allowed: it is flaky, and no more so than the catalogue says that it may be.
    """

    key: CellKey
    spec: Spec
    settled: Settled
    would_be: Settled | None
    waiver: Waiver | None
    results: tuple[ResultRecord, ...]
    nodeids: tuple[str, ...]
    left_out: bool
    reported: bool
    attempts: tuple[AttemptRecord, ...]
    allowed: bool


def take_account(catalog: Catalog, records: Sequence[Record]) -> Account | None:
    """Sort the records; None if there is no run among them."""
    runs = _only(records, RunRecord)
    if not runs:
        return None
    items, results = _only(records, ItemRecord), _only(records, ResultRecord)
    blocked, started = _only(records, BlockedRecord), _only(records, StartRecord)
    told = {result.nodeid for result in results} | {record.nodeid for record in blocked}
    known = dict.fromkeys([item.nodeid for item in items] + [record.nodeid for record in started])
    ends, plans = _only(records, EndRecord), _only(records, PlanRecord)
    return Account(
        run=runs[0],
        runs=len(runs),
        plans=len(plans),
        planned=_planned(catalog, runs[0], plans),
        items=items,
        started=frozenset(record.nodeid for record in started),
        results=results,
        attempts=_only(records, AttemptRecord),
        blocked=blocked,
        problems=_only(records, ProblemRecord),
        hardware=_only(records, HardwareRecord),
        end=ends[-1] if ends else None,
        lost=tuple(nodeid for nodeid in known if nodeid not in told),
    )


def _only(records: Iterable[Record], kind: type[_R]) -> tuple[_R, ...]:
    return tuple(record for record in records if isinstance(record, kind))


def _planned(catalog: Catalog, run: RunRecord, plans: Iterable[PlanRecord]) -> tuple[CellKey, ...]:
    """The denominator is the catalogue: a plan that forgot a cell does not make it disappear."""
    scope = Scope(scope_in=run.scope_in, scope_out=run.scope_out, partly=run.scope_partly)
    due = plan(catalog, scope, lowerers=run.lowerers, gpus=[gpu.uuid for gpu in run.gpus])
    written = [key for record in plans for key in record.cells if key.spec in catalog.specs]
    place = {ident: number for number, ident in enumerate(catalog.specs)}
    return tuple(sorted(dict.fromkeys([*written, *due]), key=lambda key: place[key.spec]))


def settle_cells(catalog: Catalog, account: Account) -> tuple[Cell, ...]:
    """Every planned cell, in the catalogue's order, with second opinions and waivers applied."""
    groups = _groups(catalog, account)
    bare = {key: _settle(catalog.specs[key.spec], groups[key], account) for key in account.planned}
    there = [key for key in bare if groups[key].items]
    waived = waived_cells(account.waivers, there, account.today)
    bare |= dict(_rooted(Graph.over(catalog, there), bare, waived))
    blamed = {key: _blamed(catalog.specs[key.spec], key, bare, groups[key], account) for key in bare}
    return tuple(_cell(catalog, key, groups[key], blamed[key], account) for key in bare)


@dataclass(slots=True)
class _Group:
    """What the records say of one cell."""

    items: list[ItemRecord]
    results: list[ResultRecord]
    attempts: list[AttemptRecord]
    blocked: list[BlockedRecord]


def _groups(catalog: Catalog, account: Account) -> dict[CellKey, _Group]:
    groups: dict[CellKey, _Group] = defaultdict(lambda: _Group([], [], [], []))
    owner: dict[str, CellKey] = {}
    for item in account.items:
        if key := key_of(catalog, item):
            groups[key].items.append(item)
            owner[item.nodeid] = key
    for result in sorted(account.results, key=lambda record: record.nodeid):
        if key := key_of(catalog, result):
            groups[key].results.append(result)
    for attempt in account.attempts:
        if attempt.nodeid in owner:
            groups[owner[attempt.nodeid]].attempts.append(attempt)
    for record in account.blocked:
        if record.nodeid in owner:
            groups[owner[record.nodeid]].blocked.append(record)
    return groups


def key_of(catalog: Catalog, record: ItemRecord | ResultRecord) -> CellKey | None:
    """The cell that a test speaks for; None without a spec that the catalogue knows."""
    spec = catalog.specs.get(record.spec) if record.spec else None
    return spec.key(record.lowerer, record.gpu) if spec else None


def _settle(spec: Spec, group: _Group, account: Account) -> Settled:
    lost = [
        f"{item.nodeid} {'started and never ended' if item.nodeid in account.started else 'never started'}"
        for item in group.items
        if item.nodeid in account.lost
    ]
    if not group.items and not group.results:
        lost = ["it was left out of this run: no collected test speaks for it"]
    return settle(spec, group.results, group.blocked, lost=lost, platform=account.run.platform)


def _rooted(
    graph: Graph, bare: Mapping[CellKey, Settled], waived: Collection[CellKey]
) -> Iterator[tuple[CellKey, Settled]]:
    """What is blocked, by what it is by all outcomes: in the run it was whatever happened to be broken first.

    :param graph: over the cells that took part.
    """
    outcomes: dict[CellKey, Outcome | None] = {
        key: Outcome.WAIVED if key in waived else bare[key].outcome for key in graph.edges
    }
    for key in graph.edges:
        root = graph.root(key, outcomes) if bare[key].outcome is Outcome.BLOCKED else None
        if root is not None:
            yield key, replace(bare[key], reason=stopped_by(root, outcomes[root]))


def _blamed(
    spec: Spec, key: CellKey, bare: dict[CellKey, Settled], group: _Group, account: Account
) -> Settled:
    """Without a card that it ran on there is none to blame, and nobody to ask."""
    settled, platform = bare[key], account.run.platform
    if settled.outcome is not Outcome.BROKEN or spec.on == "host" or platform != "cuda":
        return settled
    attempts = group.attempts
    same = heard(spec, group.results, attempts, Place.SAME, platform=platform)
    sibling = heard(spec, group.results, attempts, Place.SIBLING, platform=platform)
    others = merged([sibling, _peers(key, bare, account)])
    who = against(group.results, attempts)
    word = blame(settled.cause, same, others, who)
    told = in_words(attempts)
    if word != blame(settled.cause, same, others):
        told += f"; what the driver tells of it speaks against the {who}"
    return replace(settled, blame=word, reason=f"{settled.reason}{told}")


def _peers(key: CellKey, bare: dict[CellKey, Settled], account: Account) -> Answer:
    """What a cell that each card has did on the others."""
    if key.gpu is None:
        return Answer.NONE
    row = {
        other.gpu: bare[other].outcome
        for other in bare
        if other.gpu is not None and (other.spec, other.lowerer) == (key.spec, key.lowerer)
    }
    return peers(row, {gpu.uuid: gpu.name for gpu in account.run.gpus}, key.gpu)


def _allowed(spec: Spec, group: _Group, settled: Settled) -> bool:
    """Whether a flaky cell is so within its rate; the tests that failed are counted with all their attempts.

    What is broken hides that another test of the cell was stopped, and nothing was allowed of that one.
    """
    if settled.blame != "flaky" or group.blocked:
        return False
    failed = len(culprits(spec, group.results))
    again = [attempt for attempt in group.attempts if attempt.status is not Status.SKIPPED]
    failed_again = sum(attempt.status is not Status.PASSED for attempt in again)
    return allows(spec, failed + failed_again, failed + len(again))


def _cell(catalog: Catalog, key: CellKey, group: _Group, settled: Settled, account: Account) -> Cell:
    waiver = find_waiver(account.waivers, key, account.today)
    excused = waiver if settled.outcome in _EXCUSABLE else None
    told = {item.nodeid for item in group.items} | {result.nodeid for result in group.results}
    return Cell(
        key=key,
        spec=catalog.specs[key.spec],
        settled=_waived(settled, excused) if excused else settled,
        would_be=settled if excused else None,
        waiver=waiver,
        results=tuple(group.results),
        nodeids=tuple(sorted(told)),
        left_out=not told,
        reported=bool(group.results or group.blocked),
        attempts=tuple(group.attempts),
        allowed=_allowed(catalog.specs[key.spec], group, settled),
    )


def _waived(settled: Settled, waiver: Waiver) -> Settled:
    words = f"waived by {waiver.owner} until {waiver.expires.isoformat()} ({waiver.reason})"
    return replace(
        settled,
        outcome=Outcome.WAIVED,
        reason=f"{words}; would be {settled.outcome}: {settled.reason}",
    )
