"""Beside pytest-cov, pytest-timeout and pytest-rerunfailures, with workers and without: what they add, and may not hide."""

from __future__ import annotations

import pytest

from tests.run.gate import HELD, Gate, catalog_of

SUITE = (
    HELD
    + """
import time
from pathlib import Path
@pytest.mark.spec("b.flaky")
def test_flaky(measure):
    measure(x=1)
    again = Path("again").exists()
    Path("again").touch()
    assert again
@pytest.mark.spec("b.slow")
@pytest.mark.timeout(0.5)
def test_slow(measure):
    measure(x=1)
    time.sleep(2)
"""
)
WORDS = ("--reruns", "1", "--cov", ".", "--cov-report", "term")


@pytest.mark.parametrize("workers", [(), ("-n", "0")], ids=["workers", "in-process"])
def test_a_rerun_hides_no_failure_and_a_time_limit_is_one(gate: Gate, workers: tuple[str, ...]) -> None:
    result = gate.suite(SUITE, catalog_of("b.flaky", "b.slow")).away(*WORDS, *workers)

    # pytest-timeout gives the second attempt no limit, so that it would pass if it alone counted.
    cells = gate.cells
    assert {spec: (cell["outcome"], cell["attempts"]) for spec, cell in cells.items()} == {
        "a.works": ("holds", 1),
        "b.flaky": ("broken", 2),
        "b.slow": ("broken", 2),
    }
    assert "Timeout" in cells["b.slow"]["reason"]
    assert (result.ret, gate.verdict["verdict"]) == (1, "reject")
    assert gate.replayed["verdict"] == "reject"
    result.stdout.re_match_lines([r"test_suite\.py +\d+ +\d+ +\d+%"])
