"""Holds what a run left behind against what it had to report. Pure; it judges the judge and asks it nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pytest_cudaboot.faults.expect import BLOCKED, BROKEN, HOLDS, NOT_RUN, Expected, Fate
from pytest_cudaboot.faults.schedule import Act, Fault
from pytest_cudaboot.model import CellKey, Json

ACCEPT = "accept"
CUT_OFF = "the ledger has no last line: the run was cut off"
INTERRUPTED = "the run was interrupted"
# What differs from run to run and says nothing of how it went: workers, pids, seconds, folders.
_PASSING = re.compile(r"gw\d+|\bprocess \d+|\bpid \d+|\b\d+(\.\d+)? s\b|/\S+")

_UNDONE = re.compile(r"the disk is full|\bis not-run$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What a run left behind.

    :param verdict: the one on disk.
    :param replayed: the judgement over its ledger.
    :param earnest: the same, as if the box had not been simulated.
    :param ledger: its lines.
    :param fired: numbers of the faults that were committed.
    :param left: what still lives or is locked, in words.
    """

    returncode: int
    verdict: Json
    replayed: Json
    earnest: Json
    ledger: tuple[Json, ...]
    fired: frozenset[int]
    left: tuple[str, ...]


def problems(expected: Expected, observed: Observed) -> list[str]:
    """What does not hold, in words; empty if all does."""
    ended = expected.end is not None
    return [
        *observed.left,
        *_balance(expected, observed),
        *_fired(expected, observed),
        *_cells(expected, observed, ended=ended),
        *(_end(expected.end, observed) if expected.end else _whole(expected, observed)),
    ]


def normal(verdict: Json) -> Json:
    """A verdict without what passes: two runs of one seed have the same.

    Where a cell runs that any card may have is one of these, and with it on which cards nothing was proved.
    """
    cells = [
        [*_named(cell), *(_steady(cell[key]) for key in ("outcome", "cause", "blame", "reason"))]
        for cell in verdict["cells"]
    ]
    return {
        "verdict": verdict["verdict"],
        "exit": verdict["exit"],
        "reasons": sorted(
            str(_steady(reason))
            for reason in verdict["reasons"]
            if not reason.startswith("nothing is proved on GPU")
        ),
        "cells": cells,
        "ledger": verdict["ledger"],
    }


def _steady(text: str | None) -> str | None:
    return None if text is None else _PASSING.sub("*", text)


def _named(cell: Json) -> tuple[str, str | None, str | None]:
    """Spec, lowerer and, where its tests say so by their names, the card that a cell is bound to."""
    bound = next((gpu["uuid"] for gpu in cell["gpus"] if _bound(cell, gpu["uuid"])), None)
    return cell["spec"], cell["lowerer"], bound


def _bound(cell: Json, uuid: str) -> bool:
    return any(f"{uuid[:12]}]" in nodeid for nodeid in cell["nodeids"])


def _balance(expected: Expected, observed: Observed) -> Iterator[str]:
    """Planned is reported plus named losses: by cell, and by test."""
    judged = observed.replayed
    planned = {
        CellKey(**cell) for line in observed.ledger if line["type"] == "plan" for cell in line["cells"]
    }
    if planned != set(expected.fates):
        yield f"planned were other cells: {sorted(map(str, planned ^ set(expected.fates)))}"
    if not judged["ledger"]["planned"] == len(judged["cells"]) == len(expected.fates):
        yield f"{judged['ledger']['planned']} planned, {len(judged['cells'])} cells, {len(expected.fates)} due"
    told = Counter(line["nodeid"] for line in observed.ledger if line["type"] in ("result", "blocked"))
    told.update(judged["ledger"]["lost"])
    items = Counter(line["nodeid"] for line in observed.ledger if line["type"] == "item")
    if told != items:
        yield f"not told of exactly once: {sorted(set((items - told) + (told - items)))}"
    if max(items.values(), default=0) > 1:
        yield "a test is in the ledger twice"


def _fired(expected: Expected, observed: Observed) -> Iterator[str]:
    never, needless = expected.fired - observed.fired, observed.fired - expected.fired
    if never and expected.end is None:
        yield f"faults {sorted(never)} were never committed"
    if needless:
        yield f"faults {sorted(needless)} were committed in cells that should not have run"


def _cells(expected: Expected, observed: Observed, *, ended: bool) -> Iterator[str]:
    lost = set(observed.replayed["ledger"]["lost"])
    for cell in observed.replayed["cells"]:
        key = CellKey(*_named(cell))
        fate = expected.fates.get(key)
        cut = ended and (lost.issuperset(cell["nodeids"]) or _cut_off(cell))
        if fate is None:
            yield f"{key} was not to be planned"
        elif not cut and not _as_fated(cell, fate):
            due = f"{fate.outcome} ({fate.cause}, {fate.words!r})"
            yield f"{key} is {cell['outcome']} ({cell['cause']}): {cell['reason']}; due was {due}"


def _cut_off(cell: Json) -> bool:
    """What a full disk leaves undone, where the ledger itself had room to say so."""
    return bool(_UNDONE.search(cell["reason"] or "")) and cell["outcome"] in (NOT_RUN, BLOCKED)


def _as_fated(cell: Json, fate: Fate) -> bool:
    same = (cell["outcome"], cell["cause"]) == (fate.outcome, fate.cause)
    return same and fate.words in (cell["reason"] or "")


def _whole(expected: Expected, observed: Observed) -> Iterator[str]:
    """A run that came to its end: the verdict on disk is the ledger's, and says no where it must."""
    verdict, earnest = observed.verdict, observed.earnest["verdict"]
    outcomes = {fate.outcome for fate in expected.fates.values()}
    if verdict | {"finished": None} != observed.replayed | {"finished": None}:
        yield f"the verdict is not the ledger's: {verdict['verdict']} against {observed.replayed['verdict']}"
    if observed.returncode != verdict["exit"]:
        yield f"exit status {observed.returncode}, and the verdict says {verdict['exit']}"
    if outcomes <= {HOLDS} and earnest != ACCEPT:
        yield f"nothing is wrong, and the verdict on a real box would be {earnest}: {observed.earnest['reasons']}"
    if BROKEN in outcomes and earnest not in ("reject", "hardware suspect"):
        yield f"a deciding cell is broken, and the verdict is {earnest}"
    if BLOCKED in outcomes and BROKEN not in outcomes:
        yield "a cell is blocked by nothing that is broken"


def _end(end: Fault, observed: Observed) -> Iterator[str]:
    """A run that was cut off says so, and names what it lost."""
    replayed, lost = observed.replayed, observed.replayed["ledger"]["lost"]
    # Lines that are short may still fit on a full disk; where all of them did, the ledger is whole.
    whole = end.act is Act.FULL_DISK and observed.ledger[-1]["type"] == "end"
    if ACCEPT in (observed.verdict["verdict"], *(() if whole else (observed.earnest["verdict"],))):
        yield f"accepted, though {end.kind} ended it"
    if not whole and CUT_OFF not in replayed["reasons"] and end.act in (Act.KILL, Act.FULL_DISK):
        yield f"the replay does not say that the run was cut off: {replayed['reasons']}"
    if end.act is Act.KILL:
        fate = _fate_of(end.cell, replayed)
        if fate != NOT_RUN or not lost:
            yield f"{end.cell} was lost by {end.kind} and is told as {fate}"
    yield from _ENDS[end.act](observed)


def _killed(observed: Observed) -> Iterator[str]:
    said = observed.returncode, observed.verdict["verdict"], observed.verdict["reasons"]
    if said != (-9, "incomplete", ["running"]):
        yield f"a killed controller left {said}"


def _disk(observed: Observed) -> Iterator[str]:
    said = " ".join(observed.verdict["reasons"])
    if observed.returncode != 3 or not (said == "running" or "no verdict could be written" in said):  # noqa: PLR2004 - pytest's own for an internal error
        yield f"a full disk left exit status {observed.returncode} and {said!r}"


def _interrupted(observed: Observed) -> Iterator[str]:
    if observed.returncode != observed.verdict["exit"] or observed.returncode not in (1, 2):
        yield f"exit status {observed.returncode} after an interrupt, the verdict says {observed.verdict['exit']}"
    if INTERRUPTED not in observed.verdict["reasons"]:
        yield f"the verdict does not say that the run was interrupted: {observed.verdict['reasons']}"


_ENDS: Mapping[Act, Callable[[Observed], Iterator[str]]] = {
    Act.KILL: _killed,
    Act.FULL_DISK: _disk,
    Act.INTERRUPT: _interrupted,
    Act.TERMINATE: _interrupted,
}


def _fate_of(key: CellKey, verdict: Json) -> str | None:
    return next((cell["outcome"] for cell in verdict["cells"] if CellKey(*_named(cell)) == key), None)
