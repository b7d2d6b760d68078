"""How a run begins: first the verdict of yesterday is withdrawn, then everything is decided and registered.

What only a process that runs tests needs is imported where that is decided: a controller needs no NumPy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.probes import kernel
from pytest_cudaboot.probes.history import History, default_folder
from pytest_cudaboot.probes.lease import acquire, lease_folder
from pytest_cudaboot.probes.parent import die_with, may_be_debugged
from pytest_cudaboot.report.files import Claim
from pytest_cudaboot.report.shell import variables
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.run import prepare, rootdir
from pytest_cudaboot.run.assemble import Assembly, RunId, assemble
from pytest_cudaboot.run.box import Box, choose
from pytest_cudaboot.run.budgets import FIXTURES
from pytest_cudaboot.run.controller import Controller
from pytest_cudaboot.run.pins import WorkerPins
from pytest_cudaboot.run.plan import Plan
from pytest_cudaboot.run.settings import Settings, out_folder, read_settings
from pytest_cudaboot.run.sweeper import Sweeper
from pytest_cudaboot.run.tenants import look_around

if TYPE_CHECKING:
    from pytest_cudaboot.run.watchdog import Watchdog
    from pytest_cudaboot.run.worker import Worker

IN_PROCESS = "main"  # the name of the worker that is no other process
UNPROTECTED = (
    "tests run in this process: a crash of one ends the run, and a hang in its own code is not ended"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What was decided before conftests were loaded.

    :param pins: one environment a worker; empty where tests run in this process.
    :param claim: the output folder, or null with `--collect-only`.
    """

    assembly: Assembly
    box: Box
    pins: tuple[dict[str, str], ...]
    claim: Claim | None


START: pytest.StashKey[Start] = pytest.StashKey()


def before_conftests(
    config: pytest.Config, args: list[str], environ: MutableMapping[str, str], *, worker: bool
) -> None:
    """Name the suite in every process; in the controller decide everything, and how many workers there are."""
    rootdir.correct(config, args)
    try:
        if worker:
            prepare.insert(config, args, _suite(config, read_settings(config)).arguments)
        elif config.known_args_namespace.collectonly:
            _decide(config, args, environ, RunId.now(), None)
        else:
            _claimed(config, args, environ)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def configure(config: pytest.Config, environ: MutableMapping[str, str]) -> None:
    """Register what this process is: a worker, a controller, or both."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is None:
        _configure_controller(config, config.stash[START], environ)
        return
    from pytest_cudaboot.run.stacks import offer, place
    from pytest_cudaboot.run.worker import XdistWorker

    plan = Plan.loads(workerinput["cudaboot"])
    die_with(plan.controller)
    may_be_debugged()
    offer(place(Path(plan.workdir), workerinput["workerid"]))
    worker = _register_worker(config, plan, workerinput["workerid"], environ)
    config.pluginmanager.register(XdistWorker(config, worker), "cudaboot-xdist-worker")


def _claimed(config: pytest.Config, args: list[str], environ: MutableMapping[str, str]) -> None:
    """A run that will be judged. Whatever goes wrong from here on, no older verdict survives it."""
    run = RunId.now()
    claim = Claim(out_folder(config), run.name, run.started)
    config.add_cleanup(claim.release)
    try:
        _decide(config, args, environ, run, claim)
    except UsageError as error:
        claim.refuse(str(error))
        raise


def _decide(
    config: pytest.Config,
    args: list[str],
    environ: MutableMapping[str, str],
    run: RunId,
    claim: Claim | None,
) -> None:
    kernel.require()
    settings = read_settings(config)
    suite = _suite(config, settings)
    box, hosts = _workers(config, settings, environ)
    if claim is not None and box.gpus:
        _lease(config, box, settings.wait, environ)
        others = look_around(box.gpus, environ, settings.wait)
        box = replace(box, facts={**box.facts, "tenants": others})
    assembly = assemble(config, settings, suite, box, environ, run)
    hosts = 0 if assembly.problem else hosts  # nothing will be run
    if hosts:
        args[:0] = prepare.worker_arguments(len(box.gpus), hosts)
    pins = prepare.pins(box.gpus, hosts, environ) if hosts else ()
    config.stash[START] = Start(assembly=assembly, box=box, pins=pins, claim=claim)
    prepare.insert(config, args, suite.arguments)


def _lease(config: pytest.Config, box: Box, wait: float, environ: Mapping[str, str]) -> None:
    """Keep every other run off the cards until this one is over."""
    uuids = [gpu.uuid for gpu in box.gpus]
    lease = acquire(uuids, folder=lease_folder(environ), wait=wait, say=_say)
    config.add_cleanup(lease.release)


def _say(words: str) -> None:
    """Tell at once, before there is a terminal reporter."""
    sys.stderr.write(f"cudaboot: {words}\n")
    sys.stderr.flush()


def _suite(config: pytest.Config, settings: Settings) -> prepare.Suite:
    positional = config.known_args_namespace.file_or_dir
    return prepare.find_suite(positional, config.invocation_params.dir, config.rootpath, settings.catalog)


def _workers(config: pytest.Config, settings: Settings, environ: MutableMapping[str, str]) -> tuple[Box, int]:
    """The box, and how many host workers there are beside its cards'; none where tests run in this process."""
    namespace = config.known_args_namespace
    xdist = config.pluginmanager.hasplugin("xdist")
    prepare.check_execution(namespace)
    if xdist:
        prepare.check_distribution(namespace)
    box = choose(settings.gpus, environ)
    if prepare.wants_workers(namespace, xdist=xdist) and box.problem is None:
        return box, prepare.host_workers(len(os.sched_getaffinity(0)), len(box.gpus))
    if len(box.gpus) > 1 and not namespace.collectonly:
        raise UsageError(
            f"--gpus names {len(box.gpus)} cards, and without workers there is one process for one"
        )
    return box, 0


def _configure_controller(config: pytest.Config, start: Start, environ: MutableMapping[str, str]) -> None:
    plan = start.assembly.plan
    if start.claim is None:
        _register_worker(config, plan, IN_PROCESS, environ)
        return
    notes = () if start.pins else (UNPROTECTED,)
    config.add_cleanup(Sweeper(plan.run, environ).release)
    controller = Controller(
        config,
        start.assembly,
        start.claim,
        problem=start.box.problem or start.assembly.problem,
        notes=notes,
        history=History(default_folder(environ)),
        variables=variables(environ),
    )
    config.pluginmanager.register(controller, "cudaboot-controller")
    if start.pins:
        watchdog = _watch(config, controller, environ)
        pins = WorkerPins(controller, start.pins, watchdog.leaving)
        controller.watch(pins.cards, pins.set_aside)
        config.pluginmanager.register(pins, "cudaboot-pins")
        config.pluginmanager.register(watchdog, "cudaboot-watchdog")
    else:
        _run_here(config, controller, environ)


def _run_here(config: pytest.Config, controller: Controller, environ: MutableMapping[str, str]) -> None:
    """Controller and worker in one process, which is pinned itself."""
    from pytest_cudaboot.run.inprocess import InProcess

    plan = controller.plan
    environ.update(prepare.pins(plan.gpus, 1, environ)[0])
    worker = _register_worker(config, plan, IN_PROCESS, environ)
    inprocess = InProcess(controller, worker)
    controller.watch(inprocess.cards, inprocess.set_aside)
    config.pluginmanager.register(inprocess, "cudaboot-in-process")


def _watch(config: pytest.Config, controller: Controller, environ: Mapping[str, str]) -> Watchdog:
    from pytest_cudaboot.run.scheduler import XdistWorkers
    from pytest_cudaboot.run.watchdog import Watchdog

    watchdog = Watchdog(
        XdistWorkers(config),
        controller.budget_of,
        fixtures=FIXTURES,
        folder=Path(controller.plan.workdir),
        logs=controller.plan.logs,
        tell=controller.incomplete,
        environ=environ,
    )
    controller.on_start.append(watchdog.sent)
    controller.watchdog = watchdog
    return watchdog


def _register_worker(
    config: pytest.Config, plan: Plan, name: str, environ: MutableMapping[str, str]
) -> Worker:
    from pytest_cudaboot.run import first_bad, fixtures, iree, iree_build, lean
    from pytest_cudaboot.run.worker import NAME, WORKER, Worker

    catalog = load_catalog(Path(plan.catalog), plan.offers.names) if plan.catalog else None
    worker = Worker(plan, catalog, name, environ)
    config.stash[WORKER] = worker
    config.pluginmanager.register(worker, NAME)
    config.pluginmanager.register(fixtures, "cudaboot-fixtures")
    config.pluginmanager.register(first_bad, "cudaboot-first-bad")
    config.pluginmanager.register(iree, "cudaboot-iree")
    config.pluginmanager.register(iree_build, "cudaboot-iree-build")
    config.pluginmanager.register(lean, "cudaboot-lean")
    return worker
