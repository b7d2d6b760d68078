"""What became of one cell, and which cells wait for which. Pure; it knows neither pytest nor the ledger's file."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from pytest_cudaboot.model import BlockedRecord, CellKey, Outcome, ResultRecord, Status
from pytest_cudaboot.rules.spec import needed_slots

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_cudaboot.rules.catalog import Catalog
    from pytest_cudaboot.rules.spec import Spec

WORST_FIRST = (
    Outcome.BROKEN,
    Outcome.BLOCKED,
    Outcome.NOT_RUN,
    Outcome.UNSUPPORTED,
    Outcome.WAIVED,
    Outcome.EXPIRED,
    Outcome.HOLDS,
)
LETS_GO_ON = frozenset({Outcome.HOLDS, Outcome.EXPIRED, Outcome.WAIVED, Outcome.UNSUPPORTED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The judgement over one cell; `cause` and `blame` only where it is broken."""

    outcome: Outcome
    cause: str | None = None
    blame: str | None = None
    reason: str | None = None


def settle(
    spec: Spec,
    results: Sequence[ResultRecord],
    blocked: Sequence[BlockedRecord] = (),
    *,
    lost: Sequence[str] = (),
    platform: str | None = None,
) -> Settled:
    """Make one judgement of all that is known of a cell: the worst counts, and what is missing is no pass.

    Of equally bad news the first is told, and that a test is missing says least.

    :param lost: sentences about its tests that gave no result.
    :param platform: where the run's executing cells belong, `cuda` or `cpu`.
    """
    on_card = platform == "cuda" and spec.on != "host"
    shown = _shown(results)
    voices = [_stopped(record) for record in blocked]
    voices += [Settled(outcome=Outcome.NOT_RUN, reason=reason) for reason in lost]
    voices += [_heard(spec, result, shown=shown, on_card=on_card) for result in results]
    voices += _missing(spec, results)
    worst = min(voices, key=lambda voice: WORST_FIRST.index(voice.outcome))
    if worst.outcome is not Outcome.BROKEN:
        return worst
    blame = "undecidable" if on_card else "toolchain"
    return Settled(outcome=worst.outcome, cause=worst.cause, blame=blame, reason=worst.reason)


def culprits(spec: Spec, results: Sequence[ResultRecord]) -> tuple[ResultRecord, ...]:
    """The tests that have broken their cell, and that may say something else another time."""
    shown = _shown(results)
    return tuple(
        result
        for result in results
        if result.status is not Status.PASSED
        and _heard(spec, result, shown=shown, on_card=False).outcome is Outcome.BROKEN
    )


def _shown(results: Sequence[ResultRecord]) -> bool:
    controls = [result.status for result in results if result.role == "control"]
    return bool(controls) and set(controls) == {Status.PASSED}


def _stopped(record: BlockedRecord) -> Settled:
    return Settled(outcome=Outcome.BLOCKED if record.by else Outcome.NOT_RUN, reason=record.reason)


def _missing(spec: Spec, results: Sequence[ResultRecord]) -> list[Settled]:
    if not results:
        return [Settled(outcome=Outcome.NOT_RUN, reason="no test of it reported")]
    have = {result.role for result in results}
    return [
        Settled(outcome=Outcome.NOT_RUN, reason=f"no test with role {role!r} reported")
        for role in spec.roles
        if role not in have
    ] or [Settled(outcome=Outcome.HOLDS)]


def _heard(  # noqa: PLR0911 - one return for each status
    spec: Spec, result: ResultRecord, *, shown: bool, on_card: bool
) -> Settled:
    """One test's part in the judgement.

    :param shown: whether a positive control shows that the canary asked for the right thing.
    """
    match result.status:
        case Status.PASSED:
            return _passed(result, on_card=on_card)
        case Status.FAILED:
            return _broken(_failure(result), result.cause or "assertion")
        case Status.CRASHED:
            return _broken(result.reason or "the worker died", "crash")
        case Status.SKIPPED:
            return Settled(outcome=Outcome.NOT_RUN, reason=result.reason or "skipped without a reason")
        case Status.NO_EVIDENCE:
            return Settled(outcome=Outcome.NOT_RUN, reason="no evidence")
        case Status.UNSUPPORTED:
            return _unsupported(spec, result)
        case Status.SILENT:
            return _silent(spec, result, shown=shown)


def _passed(result: ResultRecord, *, on_card: bool) -> Settled:
    # A canary may need the CPU to make its point; what must work must work on the card.
    if on_card and result.platform == "cpu" and result.role != "canary":
        return _broken("it ran on the CPU, though a card was asked for", "run")
    return Settled(outcome=Outcome.HOLDS)


def _failure(result: ResultRecord) -> str:
    words = result.reason or "failed without a word"
    if result.role == "canary":
        return f"not as documented: {words}"
    return f"the control failed: {words}" if result.role == "control" else words


def _unsupported(spec: Spec, result: ResultRecord) -> Settled:
    words = result.reason or "the component does not have it"
    if "unsupported" in spec.may:
        return Settled(outcome=Outcome.UNSUPPORTED, reason=words)
    return _broken(f"unsupported, which the catalogue does not allow here: {words}", result.cause or "run")


def _silent(spec: Spec, result: ResultRecord, *, shown: bool) -> Settled:
    if result.role != "canary" or spec.canary is None:
        return _broken("it is silent, and only a canary can be", "assertion")
    if spec.canary == "guard":
        return _broken("the guard is silent", "assertion")
    if shown:
        seen = f" ({result.reason})" if result.reason else ""
        return Settled(
            outcome=Outcome.EXPIRED, reason=f"the canary no longer fails, so the document is stale here{seen}"
        )
    return _broken(
        "the canary does not fail, and no control shows that the thing was really asked for", "assertion"
    )


def _broken(reason: str, cause: str) -> Settled:
    return Settled(outcome=Outcome.BROKEN, cause=cause, reason=reason)


def prerequisites(catalog: Catalog, cells: Iterable[CellKey], key: CellKey) -> tuple[CellKey, ...]:
    """The planned cells that one cell waits for: same lowerer, same card.

    A cell without a card counts for every card, and waits for every card.
    """
    spec = catalog.specs[key.spec]
    wanted = {need: needed_slots(spec, key.lowerer, catalog.specs[need]) for need in spec.needs}
    return tuple(
        cell
        for cell in cells
        if cell.lowerer in wanted.get(cell.spec, ()) and (None in (cell.gpu, key.gpu) or cell.gpu == key.gpu)
    )


def stopped_by(root: CellKey, outcome: Outcome | None) -> str:
    """Why a cell is blocked."""
    return f"its prerequisite {root} is {outcome}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """Whether a cell may be started now.

    :param by: the cell at the root of it, if it is blocked: one root cause is one red cell.
    """

    waits: bool = False
    by: CellKey | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """The bring-up graph over the planned cells, in their order."""

    edges: Mapping[CellKey, tuple[CellKey, ...]]

    @classmethod
    def over(cls, catalog: Catalog, cells: Collection[CellKey]) -> Graph:
        return cls(edges={key: prerequisites(catalog, cells, key) for key in cells})

    def prerequisites(self, key: CellKey) -> tuple[CellKey, ...]:
        return self.edges[key]

    def order(self) -> tuple[CellKey, ...]:
        """All cells, each after its prerequisites."""
        return tuple(TopologicalSorter(self.edges).static_order())

    def readiness(self, key: CellKey, outcomes: Mapping[CellKey, Outcome | None]) -> Readiness:
        """What the cells so far mean for one that has not begun.

        :param outcomes: of the cells that take part in this run, None while a cell is open. A prerequisite that
            the user left out holds nothing up: the verdict is incomplete because of it anyway.
        """
        root = self.root(key, outcomes)
        if root is not None:
            return Readiness(by=root)
        return Readiness(waits=any(outcomes.get(need, Outcome.HOLDS) is None for need in self.edges[key]))

    def root(self, key: CellKey, outcomes: Mapping[CellKey, Outcome | None]) -> CellKey | None:
        """Of all that stops a cell so far the first that is broken, or the first: which one was seen first is chance."""
        roots = list(self._roots(key, outcomes))
        return min(roots, key=lambda root: outcomes[root] is not Outcome.BROKEN, default=None)

    def _roots(self, key: CellKey, outcomes: Mapping[CellKey, Outcome | None]) -> Iterator[CellKey]:
        for need in self.edges[key]:
            outcome = outcomes.get(need)
            if outcome is not None and outcome not in LETS_GO_ON:
                above = list(self._roots(need, outcomes)) if outcome is Outcome.BLOCKED else []
                yield from above or [need]
