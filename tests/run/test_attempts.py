"""A test that another plugin runs again: each attempt is counted, and a failure stays one."""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_cudaboot.model import ItemRecord, ResultRecord, Status
from pytest_cudaboot.run.failures import Failure
from pytest_cudaboot.run.ledger import Results, attach_failure

NODEID = "test_it.py::test_it"


def report(when: Literal["setup", "call", "teardown"], outcome: str = "passed") -> pytest.TestReport:
    made = pytest.TestReport(NODEID, ("test_it.py", 1, "test_it"), {}, "passed", None, when)
    made.outcome = outcome  # type: ignore[assignment] # `rerun` is no outcome of pytest's own
    return made


def result_of(*reports: pytest.TestReport) -> ResultRecord:
    results = Results()
    results.expect([ItemRecord(nodeid=NODEID, spec=None, role="check", lowerer=None, gpu=None)])
    *_, last = (results.take(one, "gw0") for one in reports)
    assert last is not None
    return last


def test_a_failure_that_passes_when_run_again_is_a_failure_in_two_attempts() -> None:
    failed = report("call", "rerun")
    attach_failure(failed, Failure(status=Status.FAILED, cause="assertion", reason="no"))
    result = result_of(report("setup"), failed, report("setup"), report("call"), report("teardown"))

    assert (result.status, result.attempts) == (Status.FAILED, 2)


def test_what_is_run_once_has_one_attempt() -> None:
    result = result_of(report("setup"), report("call"), report("teardown"))

    assert (result.status, result.attempts) == (Status.PASSED, 1)


def test_a_failure_that_had_its_tear_down_stays_when_the_next_attempt_passes() -> None:
    failed = report("call", "rerun")
    attach_failure(failed, Failure(status=Status.FAILED, cause="assertion", reason="no"))
    first = (report("setup"), failed, report("teardown"))
    result = result_of(*first, report("setup"), report("call"), report("teardown"))

    assert (result.status, result.reason, result.attempts) == (Status.FAILED, "no", 2)
