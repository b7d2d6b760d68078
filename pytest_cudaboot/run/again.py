"""A test is run again where its reports count for nothing else; what came of it goes to the controller by a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.runner import (
    runtestprotocol,
)  # what plugins that run tests again use; pytest has no other name for it

from pytest_cudaboot.model import ItemRecord, ResultRecord
from pytest_cudaboot.rules.ledger_lines import read_ledger, write_line
from pytest_cudaboot.run.ledger import Results, problem_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Again:
    """What came of it.

    :param problem: words for the verdict `environment`, if the box contradicts itself.
    """

    result: ResultRecord
    problem: str | None


def run_again(item: pytest.Item, record: ItemRecord, nextitem: object, worker: str) -> Again:
    """Run a test with all its phases, and report it to nobody."""
    results = Results()
    results.expect([record])
    # Not a public name, but the one that all plugins use that run tests again; there is no other.
    reports = runtestprotocol(item, log=False, nextitem=nextitem)  # type: ignore[arg-type] # the session, as in the worker's loop
    taken = [results.take(report, worker) for report in reports]
    problems = [problem for report in reports if (problem := problem_of(report))]
    result = taken[-1]
    assert result is not None  # noqa: S101 - the last report is that of the tear-down
    return Again(result=result, problem=problems[0] if problems else None)


def write_again(folder: Path, number: int, again: Again) -> None:
    """Leave an answer; complete or not there at all."""
    path = _place(folder, number)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps({"line": write_line(again.result), "problem": again.problem}))
    scratch.replace(path)


def read_again(folder: Path, number: int) -> Again:
    """What a worker left."""
    told = json.loads(_place(folder, number).read_text())
    (result,) = read_ledger([told["line"]])
    assert isinstance(result, ResultRecord)  # noqa: S101 - it is what was written
    return Again(result=result, problem=told["problem"])


def _place(folder: Path, number: int) -> Path:
    return folder / f"again-{number}.json"
