"""The controller's side of a run: it keeps the ledger while tests run elsewhere, and ends in a verdict."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.model import (
    BlockedRecord,
    EndRecord,
    PlanRecord,
    ProblemRecord,
    Ruling,
    StartRecord,
)
from pytest_cudaboot.probes.history import History
from pytest_cudaboot.report import terminal
from pytest_cudaboot.report.files import Claim
from pytest_cudaboot.report.folder import LEDGER
from pytest_cudaboot.run.assemble import Assembly
from pytest_cudaboot.run.board import CellBoard
from pytest_cudaboot.run.budgets import DEFAULT, Budgets
from pytest_cudaboot.run.collection_check import CollectionCheck, holes
from pytest_cudaboot.run.durations import Durations
from pytest_cudaboot.run.evidence import idle, read_property
from pytest_cudaboot.run.failures import last_words, short
from pytest_cudaboot.run.hardware import Hardware
from pytest_cudaboot.run.heartbeat import Heartbeat
from pytest_cudaboot.run.interrupts import Interrupts
from pytest_cudaboot.run.items import Collection, read_facts
from pytest_cudaboot.run.ledger import Ledger, Results, is_silent, problem_of
from pytest_cudaboot.run.memory import Memory
from pytest_cudaboot.run.offers import Monitors
from pytest_cudaboot.run.panel import Watchdog, panel_of
from pytest_cudaboot.run.ruling import rule


class Controller:
    """One for each run, in the process that the user started.

    :param claim: the output folder; it gets a verdict only if there is a catalogue to judge by.
    :param problem: a contradiction of the box that was found before the run, or null.
    :param notes: lines for the header.
    :param history: what earlier runs took.
    :param variables: what a script that runs a test of this run again has to set.
    """

    def __init__(
        self,
        config: pytest.Config,
        assembly: Assembly,
        claim: Claim,
        *,
        problem: str | None,
        notes: Sequence[str],
        history: History,
        variables: Mapping[str, str | None],
    ) -> None:
        self.config = config
        self.variables = variables
        self.plan = assembly.plan
        self.catalog = assembly.catalog
        self.run = assembly.record
        self.waived = assembly.waived
        self.budgets = Budgets(self.catalog, self.plan.remembered)
        self.durations = Durations(history, self.budgets)
        self.memory = Memory(history, self.run)
        self.claim = claim
        self.problem = problem
        self.notes = (*notes, *filter(None, [self.durations.complaint]))
        self.results = Results()
        self.ledger = Ledger(Path(self.plan.out) / LEDGER)
        self.board: CellBoard | None = None
        self.interrupted: str | None = None
        self.collected = CollectionCheck()
        self.finished = False
        self.heartbeat = Heartbeat(self.say)
        self.interrupts = Interrupts()
        self.on_start: list[Callable[[StartRecord], None]] = []
        self.hardware: Hardware | None = None
        self.watchdog: Watchdog | None = None
        self.monitors = Monitors(config, self.plan.platform, self.plan.gpus)
        self.on_start.append(self.monitors.sent)

    # -- before ------------------------------------------------------------------------------------------------

    def pytest_report_header(self) -> list[str]:
        return terminal.header(self.run, self.notes)

    def watch(self, cards: Callable[[str], Sequence[str]], set_aside: Callable[[str, str], None]) -> None:
        """Have the run's cards watched while tests have them.

        :param cards: the cards that a test has, by node id.
        :param set_aside: sends nothing more to a card.
        """
        if self.plan.gpus:
            self.hardware = Hardware(self.plan.gpus, cards=cards, set_aside=set_aside, record=self.ledger.add)
            self.on_start.append(self.hardware.sent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        if self.hardware is not None:
            self.run = replace(self.run, box={**self.run.box, **self.hardware.start()})
        self.ledger.add(self.run, PlanRecord(cells=self.plan.cells))
        if self.problem:
            self.problem_found(Ruling.ENVIRONMENT, self.problem)
        self.interrupts.install()
        self.heartbeat.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        if self.problem:
            pytest.exit(self.problem, returncode=13)

    def begin(self, collection: Collection) -> CellBoard:
        """The tests are known: hold them against the catalogue, write them down.

        :raises pytest.UsageError: if suite and catalogue do not fit each other.
        """
        items = collection.items
        if self.catalog is not None:
            for hole in holes(self.plan, collection):
                self.problem_found(Ruling.INCOMPLETE, hole)
            self._refuse(self.collected.misfits(self.catalog, self.plan, self.run, collection))
        self.results.expect(items)
        self.ledger.add(*items)
        self.board = CellBoard(
            self.catalog,
            self.plan.cells,
            items,
            self.durations.expect(items, collection.tasks),
            tell=self._tell,
            results=self.results,
            panel=panel_of(self, collection),
            waived=self.waived,
        )
        return self.board

    def begin_from_worker(self, collection: Sequence[str], worker: str) -> CellBoard:
        """The same, from the file that a worker left before it reported its collection."""
        written = read_facts(Path(str(self.plan.nodefile).format(worker)))
        if [item.nodeid for item in written.items] != list(collection):
            self._refuse([f"worker {worker} reported other tests than it wrote down"])
        return self.begin(written)

    # -- while it runs -----------------------------------------------------------------------------------------

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.heartbeat.begin(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if reason := problem_of(report):
            self.problem_found(Ruling.ENVIRONMENT, reason)
        node = getattr(report, "node", None)
        result = self.results.take(report, node.gateway.id if node is not None else None)
        if result is not None:
            self.heartbeat.end(report.nodeid)
            result = self.monitors.ended(result)
            if self.hardware is not None:
                result = self.hardware.ended(result)
            self.results.amend(result)
            self.ledger.add(result)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """A pass that touched nothing is not shown as one, nor a mended upstream as a failure."""
        if report.when != "call":
            return None
        if report.passed and idle(report.user_properties):
            return "without evidence", "e", "NO EVIDENCE"
        if report.failed and is_silent(report) and self._is_upstream(report):
            return "expired", "x", "EXPIRED"
        return None

    def _is_upstream(self, report: pytest.TestReport) -> bool:
        """Whether a report speaks for a spec whose canary may expire."""
        ident = read_property(report.user_properties).get("spec")
        spec = self.catalog.specs.get(ident) if self.catalog is not None and ident else None
        return spec is not None and spec.canary == "upstream"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if words := self.collected.take(report):
            self.problem_found(Ruling.INCOMPLETE, words)

    def pytest_internalerror(self, excrepr: Any) -> None:
        self.interrupted = "internal"
        self.problem_found(Ruling.INCOMPLETE, f"internal error: {last_words(str(excrepr))}")

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # xdist and pytest stop a run with a KeyboardInterrupt of their own.
        if type(excinfo.value) is KeyboardInterrupt:
            self.interrupted = "keyboard"
        elif not self.collected.broken:
            self.interrupted = "stopped"

    def budget_of(self, nodeid: str) -> float:
        """Seconds for a test's body."""
        item = self.results.items.get(nodeid)
        return self.budgets.of(item.spec, item.lowerer) if item else DEFAULT

    def incomplete(self, words: str) -> None:
        """Something kept the run from being whole."""
        self.problem_found(Ruling.INCOMPLETE, words)

    def problem_found(self, ruling: Ruling, words: str) -> None:
        """Something beside the tests went wrong."""
        self.ledger.add(ProblemRecord(ruling=ruling, reason=short(words)))

    def _refuse(self, problems: Sequence[str]) -> None:
        if problems:
            words = "suite and catalogue do not fit: " + "; ".join(problems)
            self.problem_found(Ruling.INCOMPLETE, words)
            raise pytest.UsageError(words)

    def _tell(self, record: StartRecord | BlockedRecord) -> None:
        """The board has sent a test to its worker, or stopped it for good."""
        self.ledger.add(record)
        if isinstance(record, StartRecord):
            for hear in self.on_start:
                hear(record)
        elif self.config.option.verbose > 0:
            self.say(f"{record.nodeid} {'BLOCKED' if record.by else 'NOT RUN'} ({record.reason})")

    def say(self, line: str) -> None:
        """A line on the terminal, where there is one."""
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(line)

    # -- after -------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        self.interrupts.urgent = True
        try:
            return (yield)
        except KeyboardInterrupt:  # a second Ctrl-C means "now", not "without a verdict"
            self.interrupted = "keyboard"
        finally:
            if exitstatus == pytest.ExitCode.USAGE_ERROR:
                self.interrupted = "usage"
            elif self.interrupted is None and (session.shouldstop or session.shouldfail):
                self.interrupted = "stopped"
            session.exitstatus = self._finish(session.exitstatus)

    def pytest_unconfigure(self) -> None:
        """A session that never began has no end either."""
        if not self.finished:
            self.interrupted = "internal"
            self._finish(pytest.ExitCode.INTERNAL_ERROR)

    def _finish(self, exitstatus: int) -> int:
        """The end of the ledger and the verdict; nothing more can interrupt it.

        :returns: the process's exit status.
        """
        self.finished = True
        self.interrupts.ignore()
        self.heartbeat.stop()
        if self.hardware is not None:
            self.hardware.stop()
        results = self.results.done.values()
        if words := self.durations.learn(results) or self.memory.learn(results):
            self.say(f"cudaboot: {words}")
        try:
            self.ledger.add(EndRecord(finished=_now(), interrupted=self.interrupted))
            self.ledger.close()
            if self.catalog is None:
                self.claim.drop()
                return exitstatus
            return rule(self.config, self.claim, self.catalog, self.ledger.records, self.variables, self.say)
        except (OSError, UsageError) as error:
            words = f"no verdict could be written: {error}"
            self.say(f"cudaboot: {words}")
            self.claim.refuse(words, int(pytest.ExitCode.INTERNAL_ERROR))
            return pytest.ExitCode.INTERNAL_ERROR
        finally:
            self.interrupts.restore()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
