"""The verdict: a pure function of catalogue and ledger, as the document that is published.

It must never look at pytest's exit status, the clock or the disk: a recorded run is judged again to the same words.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pytest_cudaboot.model import EXIT, Json, Outcome, Ruling, Status, to_json
from pytest_cudaboot.rules.account import Account, Cell, settle_cells, take_account
from pytest_cudaboot.rules.cells import WORST_FIRST
from pytest_cudaboot.rules.findings import cards_of, decides, find, track_rulings, worst
from pytest_cudaboot.rules.hardware import HARDWARE
from pytest_cudaboot.rules.scope import root_reason
from pytest_cudaboot.rules.waivers import Waiver, idle_reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_cudaboot.model import AttemptRecord, Record, ResultRecord, RunRecord
    from pytest_cudaboot.rules.catalog import Catalog

SCHEMA = "pytest-cudaboot/verdict/1"
SEPARATOR = " · "
EXIT_USAGE = 4
EXIT_INTERRUPTED = {"keyboard": 2, "internal": 3, "usage": EXIT_USAGE}
REASONS_SHOWN = 3
REASON_WIDTH = 40
_WORDS = {
    Outcome.BROKEN: "broken",
    Outcome.BLOCKED: "blocked",
    Outcome.NOT_RUN: "not run",
    Outcome.UNSUPPORTED: "unsupported",
    Outcome.WAIVED: "waived",
    Outcome.EXPIRED: "expired",
}


def judge(catalog: Catalog, records: Sequence[Record], *, finished: str | None = None) -> Json:
    """The complete verdict of a ledger.

    :param finished: when the run ended, for a ledger that does not say.
    """
    account = take_account(catalog, records)
    if account is None:
        reason = "the ledger has no first line: nothing is known of the run"
        return _document(run="", started=finished or "") | {"reasons": [reason], "finished": finished}
    cells = settle_cells(catalog, account)
    findings = find(catalog, account, cells)
    ruling = worst(finding.ruling for finding in findings)
    run, end = account.run, account.end
    return _document(run=run.run, started=run.started) | {
        "verdict": ruling.value,
        "exit": _exit(ruling, end.interrupted if end else None),
        "reasons": [finding.reason for finding in findings],
        "tracks": {track: value.value for track, value in track_rulings(account, cells).items()},
        "deciding": list(run.tracks),
        "scope": _scope(run),
        "simulated": run.simulated,
        "project": _project(run.project),
        "catalog": {"tolerances_sha256": None, **to_json(run.catalog), "sha256": catalog.sha256},
        "box": _box(account),
        "toolchain": to_json(run.toolchain),
        "waivers": [_waiver(waiver, catalog, account, cells) for waiver in account.waivers],
        "cells": [_cell(cell, account) for cell in cells],
        "ledger": _ledger(cells, account),
        "finished": end.finished if end else finished,
    }


def _ledger(cells: Collection[Cell], account: Account) -> Json:
    return {
        "planned": len(cells),
        "reported": sum(cell.reported for cell in cells),
        "lost": list(account.lost),
    }


def _exit(ruling: Ruling, interrupted: str | None) -> int:
    """What was found against the toolchain or the box stands, however the run ended."""
    if interrupted in EXIT_INTERRUPTED and ruling not in (Ruling.ENVIRONMENT, Ruling.REJECT):
        return EXIT_INTERRUPTED[interrupted]
    return EXIT[ruling]


def _document(*, run: str, started: str) -> Json:
    """Every key that a verdict has, for a run of which nothing is known: it is not accepted."""
    return {
        "schema": SCHEMA,
        "run": run,
        "verdict": Ruling.INCOMPLETE.value,
        "exit": EXIT[Ruling.INCOMPLETE],
        "reasons": [],
        "tracks": {},
        "scope": {"in": [], "out": []},
        "simulated": False,
        "project": _project({}),
        "catalog": {"sha256": None, "tolerances_sha256": None},
        "box": {},
        "toolchain": {},
        "waivers": [],
        "cells": [],
        "ledger": {"planned": 0, "reported": 0, "lost": []},
        "started": started,
        "finished": None,
    }


def running(run: str, started: str, *, project: Json | None = None) -> Json:
    """What lies in the verdict's place while a run goes on, so that yesterday's accept can not be read today."""
    return _document(run=run, started=started) | {"reasons": ["running"], "project": _project(project or {})}


def usage(
    run: str, started: str, message: str, *, finished: str | None = None, project: Json | None = None
) -> Json:
    """The verdict of a run that ended in a usage error before it had a ledger."""
    document = running(run, started, project=project)
    return document | {"exit": EXIT_USAGE, "reasons": [message], "finished": finished}


def environment(
    run: str, started: str, message: str, *, finished: str | None = None, project: Json | None = None
) -> Json:
    """The verdict of a run whose box contradicted itself before there was a ledger."""
    ruling = Ruling.ENVIRONMENT
    document = usage(run, started, message, finished=finished, project=project)
    return document | {"verdict": ruling.value, "exit": EXIT[ruling]}


def _scope(run: RunRecord) -> Json:
    return {
        "in": list(run.scope_in),
        "out": [{"spec": spec, "reason": reason} for spec, reason in run.scope_out],
        "partly": [
            {"spec": spec, "lowerer": lowerer, "reason": reason} for spec, lowerer, reason in run.scope_partly
        ],
        "unmet": [{"condition": condition, "reason": reason} for condition, reason in run.unmet],
    }


def _project(project: Json) -> Json:
    bare: Json = {"path": None, "name": None, "commit": None, "dirty": None, "artifacts": {}}
    return bare | dict(to_json(project))


def _box(account: Account) -> Json:
    """The box, with the cards that were taken out and why."""
    crossed = {"suspect": to_json(account.hardware)} if account.hardware else {}
    return {**to_json(account.run.box), **crossed}


def _waiver(waiver: Waiver, catalog: Catalog, account: Account, cells: Iterable[Cell]) -> Json:
    used = any(cell.waiver == waiver and cell.would_be for cell in cells)
    state = "used" if used else idle_reason(waiver, catalog, account.today) or "not needed"
    return {**waiver.to_json(), "state": state}


def _cell(cell: Cell, account: Account) -> Json:
    settled, results = cell.settled, cell.results
    return {
        "spec": cell.key.spec,
        "kind": cell.spec.kind,
        "track": cell.spec.track,
        "heading": cell.spec.heading,
        "title": cell.spec.title,
        "gate": cell.spec.gate,
        "decides": decides(account, cell),
        "lowerer": cell.key.lowerer,
        "bound": cell.key.gpu,
        "platform": _platform(cell, account.run),
        "gpus": [_gpu(uuid, account.run) for uuid in cards_of(cell)],
        "outcome": settled.outcome.value,
        "cause": settled.cause,
        "blame": settled.blame,
        "reason": settled.reason,
        "would_be": cell.would_be.outcome.value if cell.would_be else None,
        "class": None,
        "allowed": cell.allowed,
        "seconds": round(sum(result.seconds for result in results), 3),
        "attempts": max((_attempts(cell, result) for result in results), default=0),
        "measurements": _merged((result.nodeid, result.measurements) for result in results),
        "evidence": _merged((result.nodeid, result.evidence) for result in results) | _again(cell),
        "nodeids": list(cell.nodeids),
    }


def _attempts(cell: Cell, result: ResultRecord) -> int:
    """How often a test was run, opinions included."""
    again = [one for one in cell.attempts if one.nodeid == result.nodeid and one.status is not Status.SKIPPED]
    return result.attempts + len(again)


def _again(cell: Cell) -> Json:
    """Each run of the tests that were run again, the first one included; nothing where none was."""
    asked = {attempt.nodeid for attempt in cell.attempts}
    first = [_attempt(result, "first", result.gpus) for result in cell.results if result.nodeid in asked]
    again = [
        _attempt(attempt, attempt.place.value, attempt.cards)
        | {name: attempt.evidence[name] for name in (HARDWARE,) if name in attempt.evidence}
        for attempt in cell.attempts
    ]
    return {"attempts": [*first, *again]} if asked else {}


def _attempt(run: ResultRecord | AttemptRecord, place: str, cards: Sequence[str]) -> Json:
    return {
        "nodeid": run.nodeid,
        "place": place,
        "cards": list(cards),
        "status": run.status.value,
        "cause": run.cause,
        "reason": run.reason,
        "seconds": run.seconds,
    }


def _platform(cell: Cell, run: RunRecord) -> str | None:
    """Where it ran; where nothing executed, where it would have to."""
    seen = {result.platform for result in cell.results if result.platform}
    if len(seen) == 1:
        return seen.pop()
    return None if cell.spec.on == "host" and not seen else run.platform


def _gpu(uuid: str, run: RunRecord) -> Json:
    card = next((gpu for gpu in run.gpus if gpu.uuid == uuid), None)
    return {"index": card.index if card else None, "uuid": uuid, "name": card.name if card else None}


def _merged(parts: Iterable[tuple[str, Json]]) -> Json:
    """The figures of several tests in one table; a name that is taken gets the test's in front, so none is lost."""
    table: Json = {}
    for nodeid, figures in parts:
        for name, value in to_json(figures).items():
            test = nodeid.rpartition("::")[2]
            table[name if table.get(name, value) == value else f"{test}:{name}"] = value
    return table


def summary_line(verdict: Json) -> str:
    """The first printed line: verdict, project, how much holds, and how much was out of scope and why."""
    parts = [verdict["verdict"], verdict["project"]["name"] or "no project", _tally(verdict["cells"])]
    if out := verdict["scope"]["out"]:
        parts.append(f"{len(out)} out of scope ({_why_out(out)})")
    if verdict["simulated"]:
        parts.append("simulated box")
    return SEPARATOR.join(parts)


def _tally(cells: Iterable[Json]) -> str:
    """Specs by their worst cell; what does not decide is told apart, so that an accept never reads as broken."""
    specs: dict[str, list[Json]] = {}
    for cell in cells:
        specs.setdefault(cell["spec"], []).append(cell)
    fates = {spec: _fate(rows) for spec, rows in specs.items()}
    deciding = Counter(fate for spec, fate in fates.items() if specs[spec][0]["decides"])
    flaky = sum(map(_flaky, specs.values()))
    deciding[Outcome.BROKEN] -= flaky
    beside = [fate for spec, fate in fates.items() if not specs[spec][0]["decides"]]
    holds = deciding[Outcome.HOLDS] + beside.count(Outcome.HOLDS)
    words = ["1 spec holds" if holds == 1 else f"{holds} specs hold"]
    words += [f"{deciding[outcome]} {word}" for outcome, word in _WORDS.items() if deciding[outcome]]
    words += [f"{flaky} flaky as expected"] if flaky else []
    if others := len(beside) - beside.count(Outcome.HOLDS):
        words.append(f"{others} beside the gate {'does' if others == 1 else 'do'} not")
    return ", ".join(words)


def _fate(rows: Iterable[Json]) -> Outcome:
    return min((Outcome(cell["outcome"]) for cell in rows), key=WORST_FIRST.index)


def _flaky(rows: Sequence[Json]) -> bool:
    """Whether a deciding spec is broken only as its catalogue entry lets expect."""
    broken = [cell["allowed"] for cell in rows if cell["decides"] and cell["outcome"] == Outcome.BROKEN]
    return bool(broken) and all(broken)


def _why_out(out: Iterable[Json]) -> str:
    """Distinct reasons, the most frequent first; a prerequisite's reason is its dependents' too."""
    counts = Counter(_cut(root_reason(entry["reason"])) for entry in out)
    told = [reason for reason, _ in counts.most_common()]
    more = len(told) - REASONS_SHOWN
    return ", ".join(told[:REASONS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _cut(text: str) -> str:
    """A reason's first words; what was tried and where belongs into the report."""
    text = re.split(r"[\n;(]", text, maxsplit=1)[0].strip()
    return text if len(text) <= REASON_WIDTH else text[: REASON_WIDTH - 1].rstrip() + "…"
