"""Ends workers that hang in code that has no budget of its own: a thread of the controller, which kills, and never waits.

It has seen nothing of a test but what the worker reported. Device calls and commands end within their budgets by
themselves, so whoever is killed here hangs in Python, or in C code that a test calls in the worker itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_cudaboot.model import Json, StartRecord, Status
from pytest_cudaboot.run import stacks
from pytest_cudaboot.run.evidence import attach_facts
from pytest_cudaboot.run.failures import Failure
from pytest_cudaboot.run.ledger import CRASHED, attach_failure

TICK = 1.0
GRACE = 30.0  # for stacks, kills and reports, all of which come after a budget is spent
COLLECTING = 600.0
KILL_SECONDS = 5.0
LEAVING = "leaving of its card"
LEAVE_SECONDS = 30.0


class Workers(Protocol):
    """What is asked of xdist, where its names are known."""

    def pid(self, node: Any) -> int:
        """The worker's process."""

    def ending(self, node: Any) -> bool:
        """Whether it was told that nothing more is coming."""

    def behind(self) -> bool:
        """Whether something was reported that nobody has looked at yet."""

    def lose(self, node: Any, why: str) -> None:
        """Take it for dead, whatever the kernel says."""


@dataclass(slots=True)
class _Watched:
    """A worker, and what it does now.

    :param handle: a pidfd, so that a number that passed to another process is not killed.
    :param seconds: how long it has been at it, by a clock that stands still while we are stopped.
    :param limit: seconds that it may take; null if it may take its time.
    """

    node: Any
    pid: int
    handle: int
    doing: str
    limit: float | None
    nodeid: str | None = None
    seconds: float = 0.0
    killed: float | None = None
    facts: Json = field(default_factory=dict)

    def begin(self, doing: str, limit: float | None, nodeid: str | None = None) -> None:
        self.doing, self.limit, self.nodeid, self.seconds = doing, limit, nodeid, 0.0


class Watchdog:
    """A plugin of the controller, beside xdist's.

    :param budget: seconds for the body of a test, by node id; `fixtures` are the seconds for what is around it.
    :param folder: where the workers leave their stacks, and `logs` where the stacks of those that were killed go.
    :param tell: hears of a worker that hung outside of all tests.
    """

    def __init__(
        self,
        workers: Workers,
        budget: Callable[[str], float],
        *,
        fixtures: float,
        folder: Path,
        logs: Path,
        tell: Callable[[str], None],
        environ: Mapping[str, str],
    ) -> None:
        self._workers = workers
        self._budget = budget
        self._fixtures = fixtures
        self._folder = folder
        self._logs = logs
        self._tell = tell
        self._environ = dict(environ)
        self._watched: dict[str, _Watched] = {}
        self._dead: dict[str, _Watched] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cudaboot-watchdog", daemon=True)

    # -- what is heard, in the main thread ---------------------------------------------------------------------

    def pytest_configure_node(self, node: Any) -> None:
        """Its process is there, and has not yet imported a line of anybody's."""
        pid = self._workers.pid(node)
        with contextlib.suppress(ProcessLookupError), self._lock:
            watched = _Watched(node, pid, os.pidfd_open(pid), "collecting", COLLECTING)
            self._watched[node.gateway.id] = watched
        if self._thread.ident is None:
            self._thread.start()

    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        self._begin(node.gateway.id, "waiting", None)

    def sent(self, record: StartRecord) -> None:
        """A worker begins a test as soon as it is sent."""
        self._begin(record.worker, "setup", self._fixtures, record.nodeid)

    def again(self, worker: str, nodeid: str) -> None:
        """It runs a test again, and reports none of its phases."""
        self._begin(worker, "second run", self._budget(nodeid) + 2 * self._fixtures, nodeid)

    def ended(self, worker: str) -> None:
        """It has run it."""
        self._begin(worker, "waiting", None)

    def hung(self, worker: str) -> str | None:
        """Why a worker that is dead was killed, or None if it died of something else."""
        watched = self._dead.get(worker)
        return f"{watched.facts['hang']}; its worker was killed" if watched and watched.facts else None

    def leaving(self, worker: str, begun: bool) -> None:  # noqa: FBT001 - a callback of two plain facts
        """A gang's partner ends its device process, which is no test's time."""
        if begun:
            self._begin(worker, LEAVING, LEAVE_SECONDS)
        else:
            self._begin(worker, "waiting", None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node = getattr(report, "node", None)  # xdist has put it on each report of a worker
        if node is None:
            return
        worker = node.gateway.id
        if report.when == CRASHED:
            self._explain(report, worker)
        elif report.when == "setup" and report.passed:
            self._begin(worker, "call", self._budget(report.nodeid), report.nodeid)
        elif report.when == "teardown":
            self._begin(worker, "waiting", None)
        else:
            self._begin(worker, "teardown", self._fixtures, report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Its report of a crash comes after this.

        :raises Session.Interrupted: if it hung outside of all tests, since its replacement would do the same; but
            for one that hung as it left its card to a gang, which has it now.
        """
        with self._lock:
            watched = self._watched.pop(node.gateway.id, None)
        if watched is None:
            return
        self._dead[node.gateway.id] = watched
        if watched.facts and watched.nodeid is None:
            words = f"{watched.facts['hang']}, and was killed; its stacks are in {watched.facts['stacks']}"
            self._tell(words)
            if watched.doing != LEAVING:
                raise pytest.Session.Interrupted(words)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Nobody is killed after this: xdist ends what is left, within seconds."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(KILL_SECONDS)
        for watched in (*self._watched.values(), *self._dead.values()):
            os.close(watched.handle)
        self._watched.clear()
        self._dead.clear()

    def _begin(self, worker: str, doing: str, limit: float | None, nodeid: str | None = None) -> None:
        with self._lock:
            watched = self._watched.get(worker)
            if watched is not None and watched.killed is None:
                watched.begin(doing, limit, nodeid)

    def _explain(self, report: pytest.TestReport, worker: str) -> None:
        """A worker that died under a test died of us, if so."""
        watched = self._dead.get(worker)
        if watched is None or not watched.facts or watched.nodeid != report.nodeid:
            return
        reason = f"{watched.facts['hang']}; its worker was killed"
        report.longrepr = f"{report.longrepr}: {reason}"
        attach_failure(report, Failure(status=Status.FAILED, cause="hang", reason=reason))
        attach_facts(report, {"worker": watched.facts})

    # -- what is done, in the thread ---------------------------------------------------------------------------

    def _watch(self) -> None:
        # Whole ticks are counted, not a clock: while this process was stopped, its workers could not be heard.
        while not self._stop.wait(TICK):
            with self._lock:
                everybody = list(self._watched.values())
            for watched in everybody:
                self._look(watched)

    def _look(self, watched: _Watched) -> None:
        if watched.killed is not None:
            self._follow(watched)
            return
        if watched.limit is None and watched.doing == "waiting" and self._workers.ending(watched.node):
            watched.begin("ending", self._fixtures)
        watched.seconds += TICK
        if watched.limit is None or watched.seconds < watched.limit + GRACE or self._workers.behind():
            return
        self._kill(watched)

    def _kill(self, watched: _Watched) -> None:
        """Only this process: its group is the controller's too. Its device process and commands ask to die with it."""
        doing, limit = watched.doing, watched.limit
        worker = watched.node.gateway.id
        path = stacks.place(self._logs, worker)
        debugger = _said(lambda: stacks.take_native(watched.pid, path, self._environ))
        with self._lock:
            if self._stop.is_set() or watched.doing != doing or watched.seconds < TICK:
                return  # it went on while it was being looked at
            what = "it" if watched.nodeid else f"worker {worker}"
            hang = f"{what} did not end its {doing} within {limit:g} s and {GRACE:g} s of grace"
            watched.facts = {"hang": hang, "pid": watched.pid, "stacks": str(path), "debugger": debugger}
            watched.killed = 0.0
        source = stacks.place(self._folder, worker)
        _said(lambda: stacks.take_last(watched.handle, source, path))
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched.handle, signal.SIGKILL)

    def _follow(self, watched: _Watched) -> None:
        """It was killed: xdist hears of that by itself, unless the kernel can not end it, or a child keeps its pipe."""
        watched.killed = (watched.killed or 0.0) + TICK
        if watched.limit is None or watched.killed < KILL_SECONDS:
            return
        watched.limit = None
        gone = bool(select.select([watched.handle], [], [], 0)[0])
        alive = "" if gone else f", and process {watched.pid} is still alive after SIGKILL"
        watched.facts["hang"] += alive
        self._workers.lose(watched.node, f"killed by its controller{alive}")


def _said(take: Callable[[], str | None]) -> str | None:
    """What became of stacks; a full disk is no reason to let a worker hang."""
    try:
        return take()
    except OSError as error:
        return f"no stacks: {error}"
