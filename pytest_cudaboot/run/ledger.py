"""The run's record: every line is on disk before the next event, and pytest's reports become one result a test."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_cudaboot.model import ItemRecord, Json, Record, ResultRecord, Status
from pytest_cudaboot.rules.ledger_lines import write_line
from pytest_cudaboot.run.evidence import read_property
from pytest_cudaboot.run.failures import Failure, short

FAILURE = "cudaboot.failure"
CRASHED = "???"  # what xdist calls the phase in which a worker died
NOT_CALLED = Failure(status=Status.SKIPPED, cause=None, reason="its body did not run")
# A test that fails in two phases is as bad as the worse of them.
WORST_FIRST = (
    Status.CRASHED,
    Status.FAILED,
    Status.SILENT,
    Status.SKIPPED,
    Status.UNSUPPORTED,
    Status.NO_EVIDENCE,
    Status.PASSED,
)


class Ledger:
    """Append-only, one JSON line a record, each on its way to the disk before the next event.

    A ledger that could not be written once is none: it says so once, takes what is still told to it in silence,
    and says so again when it is closed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self._stream = path.open("wb", buffering=0)
        self._failure: OSError | None = None

    def add(self, *records: Record) -> None:
        """Write records, then remember them."""
        if self._failure is not None:
            return
        lines = "".join(map(write_line, records)).encode()
        try:
            while lines:  # a disk that is nearly full takes a part
                lines = lines[self._stream.write(lines) :]
        except OSError as error:
            self._failure = error
            raise
        self.records.extend(records)

    def close(self) -> None:
        """No further line is coming.

        :raises OSError: what has kept a line from being written.
        """
        self._stream.close()
        if self._failure is not None:
            raise self._failure


@dataclass(slots=True)
class _Phases:
    """What has been reported of a test so far."""

    seconds: float = 0.0
    failure: Failure | None = None
    facts: Json | None = None
    called: bool = False
    attempts: int = 0


class Results:
    """Gathers the reports of each test, and gives its result when it is complete."""

    def __init__(self) -> None:
        self.items: dict[str, ItemRecord] = {}
        self.done: dict[str, ResultRecord] = {}
        self._open: dict[str, _Phases] = {}

    def expect(self, items: Iterable[ItemRecord]) -> None:
        """The collected tests, so that one whose worker dies is still known by its cell."""
        self.items.update((item.nodeid, item) for item in items)

    def take(self, report: pytest.TestReport, worker: str | None) -> ResultRecord | None:
        """Take one report; the result, if it was the test's last."""
        phases = self._open.setdefault(report.nodeid, _Phases())
        phases.seconds += getattr(report, "duration", 0.0)
        phases.attempts += report.when == "setup"  # a plugin that runs a test again begins there again
        phases.called = phases.called or report.when == "call"
        phases.failure = _worse(phases.failure, _failure(report))
        phases.facts = read_property(report.user_properties) or phases.facts
        if report.when not in ("teardown", CRASHED):
            return None
        phases = self._open.pop(report.nodeid)
        result = self._result(report.nodeid, phases, worker)
        if (before := self.done.get(report.nodeid)) is not None:
            result = _again(before, result, phases.attempts)
        self.done[report.nodeid] = result
        return result

    def amend(self, result: ResultRecord) -> None:
        """More is known of a test that has ended."""
        self.done[result.nodeid] = result

    def _result(self, nodeid: str, phases: _Phases, worker: str | None) -> ResultRecord:
        item = self.items.get(nodeid) or ItemRecord(
            nodeid=nodeid, spec=None, role="check", lowerer=None, gpu=None
        )
        facts = phases.facts or {}
        failure = phases.failure or (None if phases.called else NOT_CALLED)
        return ResultRecord(
            nodeid=nodeid,
            spec=item.spec,
            role=item.role,
            lowerer=item.lowerer,
            gpu=item.gpu,
            status=failure.status if failure else _passed(item, facts),
            cause=failure.cause if failure else None,
            reason=failure.reason if failure else None,
            platform=facts.get("platform"),
            gpus=tuple(facts.get("gpus", ())),
            seconds=round(phases.seconds, 3),
            attempts=max(1, phases.attempts),
            measurements=facts.get("measurements", {}),
            evidence=facts.get("evidence", {}),
            worker=worker,
        )


def _again(before: ResultRecord, now: ResultRecord, attempts: int) -> ResultRecord:
    """A test that has ended before: whatever it does now, its failure stays."""
    counted = replace(
        now, attempts=before.attempts + attempts, seconds=round(before.seconds + now.seconds, 3)
    )
    if before.status is Status.PASSED:
        return counted
    return replace(counted, status=before.status, cause=before.cause, reason=before.reason)


def attach_failure(report: pytest.TestReport, failure: Failure) -> None:
    """Let a failure's meaning travel with its report."""
    data = {
        "status": failure.status,
        "cause": failure.cause,
        "reason": failure.reason,
        "problem": failure.problem,
        "root": failure.root,
    }
    report.user_properties.append((FAILURE, json.dumps(data)))


def is_silent(report: pytest.TestReport) -> bool:
    """Whether a canary did not fail: as a test it failed, and what that means is its spec's to say."""
    data = _attached(report)
    return data is not None and data["status"] == Status.SILENT


def problem_of(report: pytest.TestReport) -> str | None:
    """Words for the verdict `environment`, if the report has some."""
    data = _attached(report)
    return data.get("problem") if data else None


def _attached(report: pytest.TestReport) -> Json | None:
    # Ours comes last: what a test records by itself stands before it.
    text = next((value for name, value in reversed(report.user_properties) if name == FAILURE), None)
    return dict(json.loads(str(text))) if text is not None else None


def _failure(report: pytest.TestReport) -> Failure | None:
    data = _attached(report)
    if report.when == CRASHED and data is None:
        return Failure(status=Status.CRASHED, cause="crash", reason=str(report.longrepr))
    if data and not (report.failed and data["status"] == Status.PASSED):
        return Failure(**{**data, "status": Status(data["status"])})
    if report.failed:
        return Failure(
            status=Status.FAILED,
            cause="assertion",
            reason=short(report.longreprtext) or "failed without a word",
        )
    return None


def _worse(one: Failure | None, other: Failure | None) -> Failure | None:
    if one is not None and other is not None and other.root and one.status is Status.FAILED:
        return _explained(one, other)
    told = [failure for failure in (one, other) if failure is not None]
    return min(told, key=lambda failure: WORST_FIRST.index(failure.status), default=None)


def _explained(seen: Failure, root: Failure) -> Failure:
    """A test that failed somehow because it broke its device: the device's word leads, unless it died even sooner."""
    if seen.cause in ("crash", "hang"):
        return seen
    return replace(root, reason=short(f"{root.reason}; the test itself: {seen.reason}"))


def _passed(item: ItemRecord, facts: Json) -> Status:
    """Green without evidence is not a pass, where the catalogue is concerned."""
    idle = item.spec is not None and not facts.get("acts")
    return Status.NO_EVIDENCE if idle else Status.PASSED
