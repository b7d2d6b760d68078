"""The injector: `-p pytest_cudaboot.faults.plugin --faults SCHEDULE` commits a schedule in a run with `--gpus`.

It goes by events of tests, never by time, and commits each fault once in a run, whoever dies of it.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.faults import acts
from pytest_cudaboot.faults.schedule import PHASES, Act, Fault, Schedule, Victim
from pytest_cudaboot.model import ItemRecord
from pytest_cudaboot.run.items import cell_of
from pytest_cudaboot.run.worker import WORKER, Worker

if TYPE_CHECKING:
    from pytest_cudaboot.run.controller import Controller

MARKS = "faults"
# The infrastructure's own verbs: whether they come depends on how warm a process is, so they are not counted.
UNCOUNTED = frozenset({"arm", "prove", "open", "close", "health"})
SIGNALS = {Act.KILL: signal.SIGKILL, Act.INTERRUPT: signal.SIGINT, Act.TERMINATE: signal.SIGTERM}
RAISING = (Act.MEMORY_LIMIT,)
AFTER = dict(itertools.pairwise(PHASES))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cudaboot faults", "Faults on purpose")
    group.addoption("--faults", metavar="FILE", default=None, help="Commit this schedule of faults")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("faults") is None:
        return
    try:
        schedule = Schedule.loads(Path(config.getoption("faults")).read_text())
    except (OSError, UsageError) as error:
        raise pytest.UsageError(f"--faults {config.getoption('faults')!r}: {error}") from error
    worker = config.stash.get(WORKER, None)
    controller = config.pluginmanager.getplugin("cudaboot-controller")
    if worker is None and controller is None:
        raise pytest.UsageError("--faults needs a run with --gpus, and this is none")
    if worker is not None:
        config.pluginmanager.register(WorkerInjector(schedule, worker), "cudaboot-faults-worker")
    if controller is not None:
        config.pluginmanager.register(DiskInjector(schedule, controller), "cudaboot-faults-disk")


class Marks:
    """Which faults of a run were committed: a file each, since the process that commits one may die of it."""

    def __init__(self, out: str, run: str) -> None:
        self._folder = Path(out) / MARKS
        self._run = run

    def take(self, number: int) -> bool:
        """Whether the fault is still to be committed; it counts as committed from here on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            (self._folder / f"{self._run}-{number}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class WorkerInjector:
    """In a process that runs tests: its own death, its device's, and signals to the controller."""

    def __init__(self, schedule: Schedule, worker: Worker) -> None:
        self._schedule = schedule
        self._plan = worker.plan
        self._marks = Marks(worker.plan.out, worker.plan.run)
        self._due: list[tuple[int, Fault]] = []
        self._calls = 0
        if any(fault.victim is Victim.DEVICE for fault in schedule.faults):
            self._join_devices()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._enter(item, "setup")
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._enter(item, "call")
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._enter(item, "teardown")
        result = yield
        # pytest has to have torn down what it set up, or the next test is refused.
        self._commit_due(raising=True)
        self._due = []
        return result

    def _enter(self, item: pytest.Item, phase: str) -> None:
        cell = cell_of(item)
        found = self._schedule.at(cell) if cell is not None else ()
        self._due, self._calls = [(number, fault) for number, fault in found if fault.phase == phase], 0
        self._commit_due(raising=False)
        if phase != "teardown":
            self._commit_due(raising=True)

    def _commit_due(self, *, raising: bool) -> None:
        for number, fault in self._due:
            elsewhere = fault.victim is Victim.DEVICE or fault.act is Act.FULL_DISK
            if not elsewhere and (fault.act in RAISING) == raising and self._marks.take(number):
                self._commit(fault)

    def _commit(self, fault: Fault) -> None:
        if fault.act in SIGNALS:
            pid = os.getpid() if fault.victim is Victim.WORKER else self._plan.controller
            os.kill(pid, SIGNALS[fault.act])
        else:
            acts.IN_PROCESS[fault.act]()

    def _join_devices(self) -> None:
        """Every device process of this worker has the faulty service from now on."""
        from pytest_cudaboot.device import client
        from pytest_cudaboot.faults.service import TARGET

        injector = self

        class FaultyProcess(client.DeviceProcess):
            def __init__(self, **words: Any) -> None:
                super().__init__(**words | {"target": TARGET})

            def call(self, verb: str, /, *, budget: float, **arguments: Any) -> Any:
                if verb not in UNCOUNTED:
                    injector.before_call(self)
                return super().call(verb, budget=budget, **arguments)

        client.DeviceProcess = FaultyProcess  # type: ignore[misc] # who starts one looks it up when he does

    def before_call(self, process: Any) -> None:
        """A test is about to call its device."""
        self._calls += 1
        for number, fault in self._due:
            if fault.call == self._calls and fault.victim is Victim.DEVICE and self._marks.take(number):
                if fault.act is Act.KILL:
                    os.kill(process.pid, signal.SIGKILL)
                else:
                    process.call("arm", budget=5.0, act=fault.act.value)


class DiskInjector:
    """In the controller: its disk is full from an event of a test on."""

    def __init__(self, schedule: Schedule, controller: Controller) -> None:
        faults = enumerate(schedule.faults)
        self._faults = [(number, fault) for number, fault in faults if fault.act is Act.FULL_DISK]
        self._controller = controller
        self._marks = Marks(controller.plan.out, controller.plan.run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._enter(nodeid, "setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when in AFTER:
            self._enter(report.nodeid, AFTER[report.when])

    def _enter(self, nodeid: str, phase: str) -> None:
        item = self._controller.results.items.get(nodeid)
        for number, fault in self._faults:
            if item is not None and fault.phase == phase and _is_of(fault, item) and self._marks.take(number):
                acts.fill_disk(Path(self._controller.plan.out), self._controller.ledger.path)


def _is_of(fault: Fault, item: ItemRecord) -> bool:
    return (fault.cell.spec, fault.cell.lowerer, fault.cell.gpu) == (item.spec, item.lowerer, item.gpu)
