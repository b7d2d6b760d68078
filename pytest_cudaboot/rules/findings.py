"""What is to be said about a run, each finding with the best verdict that it leaves possible. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.model import Outcome, Ruling, Status
from pytest_cudaboot.rules.account import Account, Cell, key_of
from pytest_cudaboot.rules.waivers import idle_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_cudaboot.model import ResultRecord
    from pytest_cudaboot.rules.catalog import Catalog

WORST_FIRST = tuple(Ruling)
NAMED = 3  # so many names are told before "and N more"
INTERRUPTED = {
    "keyboard": "the run was interrupted",
    "usage": "the run ended in a usage error",
    "internal": "the run ended in an internal error",
    "stopped": "the run was stopped early (-x or --maxfail)",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason of the verdict."""

    ruling: Ruling
    reason: str


def worst(rulings: Iterable[Ruling]) -> Ruling:
    """The worst of some rulings; accept if there are none."""
    return min(rulings, key=WORST_FIRST.index, default=Ruling.ACCEPT)


def find(catalog: Catalog, account: Account, cells: Sequence[Cell]) -> list[Finding]:
    """Everything that decides, most important first; what only informs comes last, as accept."""
    findings = [
        *(Finding(problem.ruling, problem.reason) for problem in account.problems),
        *_wrong_cards(account),
        *_hardware(account),
        *_broken(account, cells),
        *_strays(catalog, account),
        *_ledger(catalog, account, cells),
        *_left_open(account, cells),
        *_unproved(account, cells),
        *_notes(catalog, account, cells),
    ]
    unique = list(dict.fromkeys(findings))
    return sorted(unique, key=lambda finding: WORST_FIRST.index(finding.ruling))


def cell_ruling(cell: Cell) -> Ruling:
    """The best verdict that one cell leaves possible, were it a deciding one."""
    match cell.settled.outcome:
        case Outcome.BROKEN if cell.allowed:
            return Ruling.ACCEPT
        case Outcome.BROKEN:
            return Ruling.HARDWARE if cell.settled.blame == "card" else Ruling.REJECT
        case Outcome.BLOCKED | Outcome.NOT_RUN:
            return Ruling.INCOMPLETE
        case _:
            return Ruling.ACCEPT


def decides(account: Account, cell: Cell) -> bool:
    """Whether a cell has a part in the overall verdict."""
    return cell.spec.gate and cell.spec.track in account.run.tracks


def track_rulings(account: Account, cells: Sequence[Cell]) -> dict[str, Ruling]:
    """Each track that has a gate cell in this run, by its own cells; a box in contradiction spoils all."""
    spoiled = [f.ruling for f in _environment(account)]
    rows: dict[str, list[Ruling]] = defaultdict(list)
    for cell in cells:
        if cell.spec.gate:
            rows[cell.spec.track].append(cell_ruling(cell))
    return {track: worst([*rulings, *spoiled]) for track, rulings in rows.items()}


def _environment(account: Account) -> list[Finding]:
    told = [Finding(problem.ruling, problem.reason) for problem in account.problems]
    return [f for f in (*told, *_wrong_cards(account)) if f.ruling is Ruling.ENVIRONMENT]


def _wrong_cards(account: Account) -> Iterator[Finding]:
    """A test that ran elsewhere than it was bound to: the pin does not hold. A gang's need not use all of its cards."""
    asked = {gpu.uuid for gpu in account.run.gpus}
    for attempt in account.attempts:
        if attempt.platform != "cpu" and not set(attempt.gpus) <= set(attempt.cards):
            bound, ran = ", ".join(attempt.cards), ", ".join(attempt.gpus)
            words = f"{attempt.nodeid} was bound to {bound} and ran again on {ran}"
            yield Finding(Ruling.ENVIRONMENT, words)
    for result in account.results:
        if result.platform == "cpu":
            continue
        ran = ", ".join(result.gpus)
        if result.gpus and result.gpu is not None and result.gpu not in result.gpus:
            words = f"{result.nodeid} was bound to {result.gpu} and ran on {ran}"
            yield Finding(Ruling.ENVIRONMENT, words)
        elif not asked.issuperset(result.gpus):
            yield Finding(Ruling.ENVIRONMENT, f"{result.nodeid} ran on {ran}, which was not asked for")


def _hardware(account: Account) -> Iterator[Finding]:
    """Cards whose counters crossed the policy, by slot, and how to go on without them."""
    left = account.hardware[-1].left if account.hardware else ()
    for record in account.hardware:
        where = (
            f"card {record.gpu} at {record.pci}"
            if record.aside
            else f"a bridge above {record.gpu} and others"
        )
        rest = f"; go on with --gpus {','.join(left)}" if record.aside and left else ""
        when = f"under {record.nodeid}" if record.nodeid else "after the last test"
        words = f"{where}: {record.words} {when} ({record.reason}){rest}"
        yield Finding(Ruling.HARDWARE, words)


def _broken(account: Account, cells: Iterable[Cell]) -> Iterator[Finding]:
    for cell in cells:
        settled = cell.settled
        if settled.outcome is Outcome.BROKEN and decides(account, cell):
            words = f"{cell.key} is broken ({settled.cause}, blame: {settled.blame}): {settled.reason}"
            if cell.allowed:
                words += f"; it may be flaky in {cell.spec.flaky} of its runs: {cell.spec.flaky_reason}"
            yield Finding(cell_ruling(cell), words)


def _strays(catalog: Catalog, account: Account) -> Iterator[Finding]:
    """Failures of tests that speak for no planned cell, though no scope excuses them."""
    excused = {spec for spec, _ in account.run.scope_out}
    partly = {(spec, lowerer) for spec, lowerer, _ in account.run.scope_partly}
    planned = set(account.planned)
    for result in account.results:
        if result.status not in (Status.FAILED, Status.CRASHED) or result.spec in excused:
            continue
        key = key_of(catalog, result)
        if key is None:
            yield Finding(Ruling.REJECT, f"a test without a spec failed: {_told(result)}")
        elif key not in planned and (key.spec, key.lowerer) not in partly:
            yield Finding(Ruling.REJECT, f"a test failed for {key}, which was not planned: {_told(result)}")


def _told(result: ResultRecord) -> str:
    return f"{result.nodeid}: {result.reason or 'without a word'}"


def _ledger(catalog: Catalog, account: Account, cells: Sequence[Cell]) -> Iterator[Finding]:
    """What makes the ledger itself no basis for an accept."""
    run = account.run
    recorded = run.catalog.get("sha256")
    scoped = {*run.scope_in, *(spec for spec, _ in run.scope_out)}
    silent = [ident for ident in catalog.specs if ident not in scoped]
    how = _interruption(account, cells)
    holes = (
        (account.end is None, "the ledger has no last line: the run was cut off"),
        (bool(how), how),
        (run.simulated, "the box was replayed from a recording, and a replay is never accepted"),
        (recorded not in (None, catalog.sha256), "the ledger was written under another catalogue"),
        (account.runs > 1, f"the ledger holds {account.runs} runs"),
        (account.plans == 0, "the ledger has no plan"),
        (not account.items and not account.results, "no test was collected"),
        (bool(silent), f"the scope is silent about {_names(silent)}"),
    )
    yield from (Finding(Ruling.INCOMPLETE, words) for applies, words in holes if applies)
    for condition, reason in run.unmet:
        yield Finding(Ruling.INCOMPLETE, f"{condition} is required, and not met: {reason}")


def _interruption(account: Account, cells: Iterable[Cell]) -> str:
    """How the run was ended before its time, in words; -x at the last test has ended nothing."""
    interrupted = account.end.interrupted if account.end else None
    whole = not account.lost and not any(cell.left_out for cell in cells)
    if interrupted is None or (interrupted == "stopped" and whole):
        return ""
    return INTERRUPTED.get(interrupted, "the run ended in an unknown way")


def _left_open(account: Account, cells: Sequence[Cell]) -> Iterator[Finding]:
    """Cells without an answer, told together where they have one reason."""
    if account.lost:
        count = _count(len(account.lost), "test", "tests")
        yield Finding(
            Ruling.INCOMPLETE,
            f"{count} never ended: {_names(account.lost)}",
        )
    if left_out := [str(cell.key) for cell in cells if cell.left_out]:
        count = _count(len(left_out), "cell in scope was", "cells in scope were")
        yield Finding(Ruling.INCOMPLETE, f"{count} left out of this run: {_names(left_out)}")
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for cell in cells:
        if cell_ruling(cell) is Ruling.INCOMPLETE and decides(account, cell) and not cell.left_out:
            word = "blocked" if cell.settled.outcome is Outcome.BLOCKED else "not run"
            groups[word, cell.settled.reason or "no reason was given"].append(str(cell.key))
    for (word, reason), names in groups.items():
        count = _count(len(names), "cell", "cells")
        yield Finding(Ruling.INCOMPLETE, f"{count} {word} ({reason}): {_names(names)}")


def _unproved(account: Account, cells: Iterable[Cell]) -> Iterator[Finding]:
    """An accept needs something that holds on each card (or the CPU), and by each lowerer."""
    deciding = [cell for cell in cells if decides(account, cell)]
    holding = [cell for cell in deciding if cell.settled.outcome is Outcome.HOLDS]
    for gpu in account.run.gpus:
        if not any(gpu.uuid in result.gpus for cell in holding for result in _executed(cell, "cuda")):
            words = f"nothing is proved on GPU {gpu.index} ({gpu.uuid}): no deciding gate cell holds there"
            yield Finding(Ruling.INCOMPLETE, words)
    if not account.run.gpus and not any(_executed(cell, "cpu") for cell in holding):
        yield Finding(
            Ruling.INCOMPLETE, "nothing is proved on the CPU: no deciding gate cell that executes holds"
        )
    for lowerer in account.run.lowerers:
        wanted = account.run.explicit_lowerers or any(lowerer in _lowerers(cell) for cell in deciding)
        if wanted and not any(lowerer in _lowerers(cell) for cell in holding):
            yield Finding(
                Ruling.INCOMPLETE, f"nothing is proved of lowerer {lowerer}: no deciding gate cell holds"
            )


def _executed(cell: Cell, platform: str) -> list[ResultRecord]:
    """The tests of a cell that a device process, or a program that trained, has run on such a platform.

    The card that a cell is bound to proves nothing: a test may have left it alone.
    """
    return [
        result for result in cell.results if result.status is Status.PASSED and result.platform == platform
    ]


def cards_of(cell: Cell) -> tuple[str, ...]:
    """UUIDs of the card that a cell is bound to and of those that its tests really ran on."""
    bound = (cell.key.gpu,) if cell.key.gpu else ()
    return tuple(dict.fromkeys([*bound, *(uuid for result in cell.results for uuid in result.gpus)]))


def _lowerers(cell: Cell) -> tuple[str, ...]:
    return cell.spec.lowerers if cell.spec.pair else (cell.key.lowerer,) if cell.key.lowerer else ()


def _notes(catalog: Catalog, account: Account, cells: Sequence[Cell]) -> Iterator[Finding]:
    """What decides nothing and should be read all the same."""
    for cell in cells:
        if cell.settled.outcome in (Outcome.EXPIRED, Outcome.WAIVED):
            yield Finding(Ruling.ACCEPT, f"{cell.key} is {cell.settled.outcome}: {cell.settled.reason}")
    for waiver in account.waivers:
        idle = idle_reason(waiver, catalog, account.today)
        if idle is None and _needless(waiver.spec, waiver.lowerer, cells):
            idle = "is not needed: what it covers holds"
        if idle:
            owner = f"the waiver of {waiver.spec} ({waiver.owner})"
            yield Finding(Ruling.ACCEPT, f"{owner} {idle}")
    beside = [cell for cell in cells if not decides(account, cell) and cell.settled.outcome is Outcome.BROKEN]
    for cell in beside:
        why = "a claim" if cell.spec.kind == "claim" else f"track {cell.spec.track}"
        yield Finding(
            Ruling.ACCEPT, f"{cell.key} is broken, which does not decide ({why}): {cell.settled.reason}"
        )


def _needless(spec: str, lowerer: str | None, cells: Iterable[Cell]) -> bool:
    covered = [cell for cell in cells if cell.key.spec == spec and lowerer in (None, cell.key.lowerer)]
    return bool(covered) and all(cell.would_be is None for cell in covered)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _names(names: Iterable[str]) -> str:
    told = list(names)
    more = len(told) - NAMED
    return ", ".join(told[:NAMED]) + (f" and {more} more" if more > 0 else "")
