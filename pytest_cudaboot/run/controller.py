"""The controller's side of a run: pins workers, keeps the ledger, and ends in a verdict."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Collection, Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_cudaboot.model import (
    CellKey,
    EndRecord,
    ItemRecord,
    PlanRecord,
    ProblemRecord,
    Ruling,
    RunRecord,
    StartRecord,
)
from pytest_cudaboot.report import files, terminal
from pytest_cudaboot.rules.catalog import Catalog, bind_problems
from pytest_cudaboot.rules.verdict import judge, summary_line
from pytest_cudaboot.run import failures
from pytest_cudaboot.run.board import CellBoard
from pytest_cudaboot.run.heartbeat import Heartbeat
from pytest_cudaboot.run.items import read_facts
from pytest_cudaboot.run.ledger import Ledger, Results, problem_of
from pytest_cudaboot.run.plan import Plan


class Controller:
    """One for each run, in the process that the user started.

    :param catalog: null for a user's own tests: then there is a ledger, but no verdict.
    :param problem: a contradiction of the box that was found before the run, or null.
    :param notes: lines for the header.
    """

    def __init__(
        self,
        config: pytest.Config,
        plan: Plan,
        catalog: Catalog | None,
        run: RunRecord,
        *,
        waived: Collection[CellKey],
        problem: str | None,
        notes: Sequence[str],
    ) -> None:
        self.config = config
        self.plan = plan
        self.catalog = catalog
        self.run = run
        self.waived = waived
        self.problem = problem
        self.notes = notes
        self.results = Results()
        self.ledger = Ledger(Path(plan.out) / files.LEDGER)
        self.board: CellBoard | None = None
        self.interrupted: str | None = None
        self.heartbeat = Heartbeat(self._say)

    # -- before ------------------------------------------------------------------------------------------------

    def pytest_report_header(self) -> list[str]:
        return terminal.header(self.run, self.notes)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self.ledger.add(self.run, PlanRecord(cells=self.plan.cells))
        if self.problem:
            self.ledger.add(ProblemRecord(ruling=Ruling.ENVIRONMENT, reason=self.problem))
        signal.signal(signal.SIGTERM, _interrupt)
        self.heartbeat.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        if self.problem:
            pytest.exit(self.problem, returncode=13)

    def begin(self, items: Sequence[ItemRecord], lanes: Sequence[str], deselected: int) -> CellBoard:
        """The tests are known: hold them against the catalogue, write them down.

        :raises pytest.UsageError: if suite and catalogue do not fit each other.
        """
        if self.catalog is not None and self.plan.complete and not deselected:
            problems = bind_problems(self.catalog, items, self.run.scope_in)
            if problems:
                raise pytest.UsageError("suite and catalogue do not fit: " + "; ".join(problems))
        self.results.expect(items)
        self.ledger.add(*items)
        self.board = CellBoard(
            self.catalog,
            self.plan.cells,
            items,
            lanes,
            ledger=self.ledger,
            results=self.results,
            waived=self.waived,
        )
        return self.board

    def begin_from_worker(self, collection: Sequence[str], worker: str) -> CellBoard:
        """The same, from the file that a worker left before it reported its collection."""
        items, lanes, deselected = read_facts(Path(str(self.plan.nodefile).format(worker)))
        if [item.nodeid for item in items] != list(collection):
            raise pytest.UsageError(f"worker {worker} reported other tests than it wrote down")
        return self.begin(items, lanes, deselected)

    # -- while it runs -----------------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.heartbeat.begin(nodeid)
        self.ledger.add(StartRecord(nodeid=nodeid, worker=""))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if reason := problem_of(report):
            self.ledger.add(ProblemRecord(ruling=Ruling.ENVIRONMENT, reason=reason))
        node = getattr(report, "node", None)
        result = self.results.take(report, node.gateway.id if node is not None else None)
        if result is not None:
            self.heartbeat.end(report.nodeid)
            self.ledger.add(result)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            where = report.nodeid or "the collection"
            reason = failures.short(f"{where} could not be collected: {report.longreprtext}")
            self.ledger.add(ProblemRecord(ruling=Ruling.INCOMPLETE, reason=reason))

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.interrupted = "internal"
        reason = failures.short(f"internal error: {str(excrepr).strip().splitlines()[-1]}")
        self.ledger.add(ProblemRecord(ruling=Ruling.INCOMPLETE, reason=reason))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # xdist stops a run after -x with a KeyboardInterrupt of its own.
        stopped = type(excinfo.value) is not KeyboardInterrupt
        self.interrupted = "stopped" if stopped else "keyboard"

    # -- after -------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        try:
            return (yield)
        finally:
            self.heartbeat.stop()
            self._finish(session, exitstatus)

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.USAGE_ERROR:
            self.interrupted = "usage"
        self.ledger.add(EndRecord(finished=_now(), interrupted=self.interrupted))
        self.ledger.close()
        if self.catalog is None:
            (Path(self.plan.out) / files.VERDICT).unlink(missing_ok=True)
        else:
            self._judge(session, self.catalog)
        shutil.rmtree(self.plan.workdir, ignore_errors=True)

    def _judge(self, session: pytest.Session, catalog: Catalog) -> None:
        verdict = judge(catalog, self.ledger.records)
        session.exitstatus = verdict["exit"]
        path = files.write_verdict(Path(self.plan.out), verdict)
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is None:
            return
        writer = reporter._tw  # noqa: SLF001 - the reporter's own writer is the only one that capture leaves alone
        color = bool(writer.hasmarkup)
        if reporter.verbosity >= 0:
            writer.line()
            writer.line(terminal.table(verdict, width=writer.fullwidth, color=color))
        writer.line(terminal.closing(verdict, summary_line(verdict), _shown(path), color=color))

    def _say(self, line: str) -> None:
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(line)


class WorkerPins:
    """Gives each worker its card, through the one thing that its replacement inherits: the xdist spec."""

    def __init__(self, controller: Controller, pins: Sequence[dict[str, str]]) -> None:
        self.controller = controller
        self.pins = pins

    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        for spec, pin in zip(specs, self.pins, strict=True):
            spec.env.update(pin)

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["cudaboot"] = self.controller.plan.dumps()

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from pytest_cudaboot.run.scheduler import Lanes

        return Lanes(config, log, self.controller.begin_from_worker)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt("SIGTERM")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _shown(path: Path) -> str:
    """A path as short as it can be and still be opened from here."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
