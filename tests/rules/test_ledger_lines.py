"""A ledger is read back as it was written, and what can not be read closes the gate instead of raising."""

from __future__ import annotations

import json
import math

import pytest

from pytest_cudaboot.model import (
    AttemptRecord,
    BlockedRecord,
    CellKey,
    EndRecord,
    HardwareRecord,
    ItemRecord,
    Place,
    PlanRecord,
    ProblemRecord,
    Record,
    Ruling,
    StartRecord,
    Status,
)
from pytest_cudaboot.rules.ledger_lines import TYPES, read_ledger, write_line
from tests.rules.builders import A, B, catalog_of, result, run_record

RECORDS: tuple[Record, ...] = (
    run_record(
        catalog_of(s__one={"when": ["lean"]}), A, B, waivers=({"spec": "s.one"},), unmet=(("lean", "no"),)
    ),
    PlanRecord(cells=(CellKey("s.one", "xla", "GPU-a"), CellKey("s.two"))),
    ItemRecord(nodeid="t.py::é", spec=None, role="check", lowerer=None, gpu=None),
    StartRecord(nodeid="t", worker="gw0"),
    result(
        status=Status.SILENT,
        gpus=("GPU-a",),
        seconds=1,
        measurements={"loss": [1, 2.5]},
        evidence={"n": None},
    ),
    AttemptRecord(nodeid="t", place=Place.SIBLING, card="GPU-b", status=Status.FAILED, evidence={"n": 1}),
    BlockedRecord(nodeid="t", by=None, reason="r"),
    ProblemRecord(ruling=Ruling.HARDWARE, reason="too hot"),
    HardwareRecord(
        gpu="GPU-a",
        pci="0:01:00.0",
        counter="xid.79",
        seen=1,
        words="XID 79",
        reason="r",
        nodeid="t",
        aside=True,
        left=("0:02:00.0",),
    ),
    EndRecord(finished="2026-12-01T10:00:00+00:00", interrupted=None),
)


def test_every_kind_of_record_is_written() -> None:
    assert {type(record) for record in RECORDS} == set(TYPES.values())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives(record: Record) -> None:
    line = write_line(record)

    assert (line.count("\n"), line[-1]) == (1, "\n")
    assert read_ledger([line]) == (record,)


def test_what_json_does_not_have_becomes_text() -> None:
    line = write_line(result(measurements={"loss": math.nan, "norms": [math.inf]}))

    assert json.loads(line)["measurements"] == {"loss": "nan", "norms": ["inf"]}


def test_blank_lines_say_nothing() -> None:
    assert read_ledger(["\n", write_line(RECORDS[-1]), "\n"]) == RECORDS[-1:]


def test_a_torn_last_line_is_a_problem_and_the_rest_counts() -> None:
    lines = [write_line(record) for record in RECORDS]

    *read, torn = read_ledger([*lines[:-1], lines[-1][:20]])

    assert tuple(read) == RECORDS[:-1]
    assert torn == ProblemRecord(ruling=Ruling.INCOMPLETE, reason="the ledger ends in the middle of a line")


@pytest.mark.parametrize("cut", [1, 10, 40, 100])
def test_no_cut_of_the_last_line_is_taken_for_a_record(cut: int) -> None:
    line = write_line(RECORDS[4])

    assert isinstance(read_ledger([line[:cut]])[0], ProblemRecord)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1 of the ledger is not JSON"),
        ("3", "line 1 of the ledger is no record"),
        ("{}", "line 1 of the ledger is no record that is known here: KeyError('type')"),
        ('{"type": "news"}', "KeyError('news')"),
        ('{"type": "start", "nodeid": "t"}', "worker"),
        ('{"type": "start", "nodeid": 3, "worker": ""}', "nodeid is 3"),
        ('{"type": "start", "nodeid": "t", "worker": "", "more": 1}', "more"),
        ('{"type": "problem", "ruling": "fine", "reason": ""}', "fine"),
        ('{"type": "plan", "cells": {}}', "cells is {}"),
    ],
)
def test_a_line_that_can_not_be_read_is_a_problem(line: str, words: str) -> None:
    problem, end = read_ledger([line, write_line(RECORDS[-1])])

    assert isinstance(problem, ProblemRecord)
    assert problem.ruling is Ruling.INCOMPLETE
    assert words in problem.reason
    assert isinstance(end, EndRecord)
