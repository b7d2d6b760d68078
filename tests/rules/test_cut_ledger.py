"""A ledger that was cut anywhere, as whatever kills a controller leaves it: judged, never accepted, and every loss named."""

from __future__ import annotations

import pytest

from pytest_cudaboot.model import ItemRecord, Json, Record, ResultRecord
from pytest_cudaboot.rules.ledger_lines import read_ledger, write_line
from pytest_cudaboot.rules.verdict import judge
from tests.rules.builders import A, ledger, run_record
from tests.rules.runs import CATALOG

RECORDS: tuple[Record, ...] = tuple(ledger(CATALOG, run_record(CATALOG, A)))
LINES = [write_line(record) for record in RECORDS]
WHOLE = "".join(LINES).encode()


def replayed(data: bytes) -> Json:
    """As `cudaboot replay` reads a file."""
    return judge(CATALOG, read_ledger(data.decode(errors="replace").splitlines()))


def test_the_whole_one_is_an_accept() -> None:
    assert replayed(WHOLE)["verdict"] == "accept"


@pytest.mark.parametrize("kept", range(len(LINES)))
def test_what_was_not_reported_is_named(kept: int) -> None:
    found = replayed("".join(LINES[:kept]).encode())
    told = {record.nodeid for record in RECORDS[:kept] if isinstance(record, ResultRecord)}
    known = {record.nodeid for record in RECORDS[:kept] if isinstance(record, ItemRecord)}

    assert (found["verdict"], found["exit"]) == ("incomplete", 12)
    assert set(found["ledger"]["lost"]) == known - told
    for nodeid in known - told:
        (cell,) = (cell for cell in found["cells"] if nodeid in cell["nodeids"])
        assert cell["outcome"] == "not-run"
        assert "never" in cell["reason"]


@pytest.mark.parametrize("part", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("place", range(len(LINES)))
def test_half_a_line_counts_for_nothing_and_is_told(place: int, part: float) -> None:
    line = LINES[place].encode()
    found = replayed("".join(LINES[:place]).encode() + line[: max(1, int(len(line) * part) - 1)])

    assert (found["verdict"], found["exit"]) == ("incomplete", 12)
    assert place == 0 or any("ends in the middle of a line" in reason for reason in found["reasons"])


def test_a_last_line_without_its_end_is_whole() -> None:
    assert replayed(WHOLE.rstrip(b"\n"))["verdict"] == "accept"
