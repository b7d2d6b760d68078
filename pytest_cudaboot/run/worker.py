"""The worker's side of a run: which tests there are, what each did, and the device process that they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cudaboot.errors import CudabootError, DeviceError, DeviceGoneError
from pytest_cudaboot.hookspecs import LowererOffer
from pytest_cudaboot.model import Status
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.run import items as cells
from pytest_cudaboot.run.asides import Asides
from pytest_cudaboot.run.budgets import DEFAULT, FIXTURES, Budgets
from pytest_cudaboot.run.devices import Devices
from pytest_cudaboot.run.evidence import KEY, Evidence
from pytest_cudaboot.run.failures import Failure, classify
from pytest_cudaboot.run.hygiene import Hygiene
from pytest_cudaboot.run.inputs import keep_inputs
from pytest_cudaboot.run.lanes import HOST, LANE_VARIABLE
from pytest_cudaboot.run.ledger import attach_failure
from pytest_cudaboot.run.plan import Plan

if TYPE_CHECKING:
    from pytest_cudaboot.lowerers.base import LowererConfig

NAME = "cudaboot-worker"
WORKER: pytest.StashKey[Worker] = pytest.StashKey()
PROBED: pytest.StashKey[bool] = pytest.StashKey()  # whether the test's last failure is the probe's word


class Worker:
    """One for each process that runs tests.

    :param environ: the environment that this process was started with.
    """

    def __init__(self, plan: Plan, catalog: Catalog | None, name: str, environ: Mapping[str, str]) -> None:
        self.plan = plan
        self.catalog = catalog
        self.name = name
        self.environ = environ
        self.budgets = Budgets(catalog, plan.remembered)
        self.lane = environ.get(LANE_VARIABLE, HOST)
        self.gpu = plan.gpu(self.lane)
        self.devices = Devices(environ, self.gpu, plan.logs, name, Asides(Path(plan.workdir)))
        self.hygiene: Hygiene | None = None  # where a worker has no card, there is nothing to keep clean
        self.deselected: list[str] = []
        self.outside: set[str] = set()

    # -- collection --------------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize from the controller's plan, never from what this worker sees: all must collect the same."""
        named = cells.spec_of(metafunc.definition)
        if named is not None:
            planned = cells.cells_of(self.plan, named[0])
            ids = [cells.cell_id(cell) for cell in planned]
            metafunc.parametrize(cells.CELL, planned, indirect=True, ids=ids)
        if "net" in metafunc.fixturenames:
            metafunc.parametrize("net", self.plan.nets, indirect=True)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Of what the user's selection leaves out, that counts which is in scope."""
        inside = {cell.spec for cell in self.plan.cells}
        named = ((item.nodeid, cells.spec_of(item)) for item in items)
        self.deselected += [nodeid for nodeid, spec in named if spec is not None and spec[0] in inside]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what is out of scope, and put prerequisites before what needs them."""
        if self.catalog is None:
            return
        inside = {cell.spec for cell in self.plan.cells}
        order = {spec: place for place, spec in enumerate(cells.bring_up_order(self.catalog))}
        known = [(cells.spec_of(item), item) for item in items]
        kept = [
            (order.get(named[0], -1) if named else len(order), item)
            for named, item in known
            if named is None or named[0] in inside or named[0] not in order
        ]
        self.outside = {named[0] for named, _ in known if named} & set(order) - inside
        items[:] = [item for _, item in sorted(kept, key=lambda pair: pair[0])]

    def collection(self, items: Sequence[pytest.Item]) -> cells.Collection:
        """The tests that are left, as the controller is told of them."""
        return cells.Collection(
            items=tuple(cells.record_of(item) for item in items),
            tasks=cells.tasks_of(items, self.plan, self.catalog),
            deselected=tuple(self.deselected),
            outside=tuple(sorted(self.outside)),
        )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The collection has been told: what every test needs is had while the run is planned, not by the first test."""
        if self.devices.gpus and session.items and not session.config.option.collectonly:
            self.hygiene = Hygiene(self.devices, self.plan.run, self._own())

    # -- one test ----------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        named = cells.spec_of(item)
        item.stash[KEY] = Evidence(deadline=0.0, spec=named[0] if named else None, nodeid=item.nodeid)
        item.stash[KEY].allow(FIXTURES)
        item.stash[PROBED] = False
        if self.devices.gpus:
            self.hygiene = self.hygiene or Hygiene(self.devices, self.plan.run, self._own())
            self.hygiene.begin()

    def _own(self) -> list[int]:
        """What is pinned to the card as well, and is no test's: this process, and whoever started it."""
        return [os.getpid(), os.getppid(), self.plan.controller]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        cell = cells.cell_of(item)
        item.stash[KEY].allow(self.budgets.of(cell.spec, cell.lowerer) if cell else DEFAULT)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Probe before the fixtures end, since they would close sessions of a broken context, and after that again."""
        evidence = item.stash[KEY]
        evidence.allow(FIXTURES)
        found: CudabootError | None = self.devices.settle(evidence)
        try:
            return (yield)
        finally:
            found = found or self.devices.settle(evidence)
            left = self.hygiene.end(evidence) if self.hygiene is not None else None
            found = found or left
            # A canary is there to break something; what it left behind has been ended, and is told.
            interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt | pytest.exit.Exception)
            if (
                found is not None
                and not interrupted
                and (cells.spec_of(item) or ("", "check"))[1] != "canary"
            ):
                item.stash[PROBED] = True
                raise found

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        evidence = item.stash.get(KEY, None)
        if call.excinfo is not None and not report.passed:
            _explain(report, call.excinfo.value, evidence, root=item.stash.get(PROBED, False))
            if evidence is not None:
                keep_inputs(evidence, self.plan.logs, self.name)
        elif report.passed and hasattr(report, "wasxfail"):
            attach_failure(report, _no_pass(f"passed, though marked xfail: {report.wasxfail}"))
        if evidence is not None and report.when != "setup":
            report.user_properties.append(evidence.to_property())
        return report

    # -- the device --------------------------------------------------------------------------------------------

    def config(self, lowerer: str, shim: Path, extra: Mapping[str, str]) -> LowererConfig:
        """How a lowerer is opened on this worker's device.

        :param extra: environment that makes it another one, such as create options.
        """
        from pytest_cudaboot.lowerers.base import LowererConfig

        plugin = self.plan.plugin
        environment = {"PJRT_PLUGIN": plugin, **extra} if plugin else dict(extra)
        return LowererConfig(
            name=lowerer,
            platform=self.plan.platform,
            shim=str(shim),
            plugin=plugin,
            environment=environment,
        )

    def offered(self, offer: LowererOffer) -> LowererConfig:
        """How another package's lowerer is opened on this worker's device."""
        from pytest_cudaboot.lowerers.base import LowererConfig

        return LowererConfig(
            name=offer.name,
            platform=self.plan.platform,
            shim=offer.shim,
            plugin=offer.plugin,
            environment=offer.environment,
            implementation=offer.implementation,
        )

    def hold(self, uuids: Sequence[str]) -> None:
        """Have the cards of a gang, or the worker's own again."""
        self.devices.hold([gpu for gpu in map(self.plan.gpu, uuids) if gpu is not None])

    def leave(self) -> None:
        """Have nothing on any card."""
        self.devices.leave()

    def again(self, item: pytest.Item, nextitem: object, number: int) -> None:
        """Run a test again in a fresh device process, for a second opinion."""
        from pytest_cudaboot.run.again import run_again, write_again

        self.leave()  # a gang's cards are held already
        again = run_again(item, cells.record_of(item), nextitem, self.name)
        self.leave()
        write_again(Path(self.plan.workdir), number, again)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.leave()


class XdistWorker:
    """What a worker does only because xdist started it."""

    def __init__(self, config: pytest.Config, worker: Worker) -> None:
        self.config = config
        self.worker = worker

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        from pytest_cudaboot.run.scheduler import run_without_lookahead

        run_without_lookahead(self.config, session, self.worker)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before xdist tells the controller: it looks for the file as soon as it is told."""
        worker = self.worker
        path = Path(str(worker.plan.nodefile).format(worker.name))
        cells.write_facts(path, worker.collection(session.items))


def _explain(
    report: pytest.TestReport, error: BaseException, evidence: Evidence | None, *, root: bool
) -> None:
    """Say what a failure means, while the exception is still at hand."""
    if isinstance(error, DeviceError) and evidence is not None:
        evidence.note(device=error.evidence)
        if isinstance(error, DeviceGoneError) and error.culprit is not None:
            evidence.note(culprit=error.culprit)
    failure = replace(classify(error, evidence.nodeid if evidence else None), root=root)
    if report.skipped and failure.status is not Status.SKIPPED:
        failure = _no_pass(f"expected failure: {failure.reason}")
    attach_failure(report, failure)


def _no_pass(reason: str) -> Failure:
    """What xfail says of a test is an excuse for nothing: an exception for a spec is a waiver."""
    return Failure(status=Status.SKIPPED, cause=None, reason=reason)
