"""What a controller decides before conftests are loaded, and what it registers for that. Workers never import it.

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
from pytest_cudaboot.report.files import Claim
from pytest_cudaboot.report.shell import variables
from pytest_cudaboot.run import prepare
from pytest_cudaboot.run.assemble import Assembly, RunId, assemble
from pytest_cudaboot.run.box import Box, choose
from pytest_cudaboot.run.budgets import FIXTURES
from pytest_cudaboot.run.controller import Controller
from pytest_cudaboot.run.pins import WorkerPins
from pytest_cudaboot.run.settings import Settings, out_folder, read_settings
from pytest_cudaboot.run.sweeper import Sweeper
from pytest_cudaboot.run.tenants import look_around

if TYPE_CHECKING:
    from pytest_cudaboot.run.watchdog import Watchdog

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


def looked(config: pytest.Config, args: list[str], environ: MutableMapping[str, str]) -> None:
    """A run that only collects: it holds no folder and gives no verdict."""
    decide(config, args, environ, RunId.now(), None)


def claimed(config: pytest.Config, args: list[str], environ: MutableMapping[str, str]) -> None:
    """A run that will be judged. Whatever goes wrong from here on, no older verdict survives it."""
    run = RunId.now()
    claim = Claim(out_folder(config), run.name, run.started)
    config.add_cleanup(claim.release)
    try:
        decide(config, args, environ, run, claim)
    except UsageError as error:
        claim.refuse(str(error))
        raise


def decide(
    config: pytest.Config,
    args: list[str],
    environ: MutableMapping[str, str],
    run: RunId,
    claim: Claim | None,
) -> None:
    kernel.require()
    settings = read_settings(config)
    suite = prepare.suite_of(config, settings.catalog)
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


def configure_controller(config: pytest.Config, start: Start, environ: MutableMapping[str, str]) -> None:
    plan = start.assembly.plan
    if start.claim is None:
        from pytest_cudaboot.run.joining import register_worker

        register_worker(config, plan, IN_PROCESS, environ)
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
    from pytest_cudaboot.run.joining import register_worker

    plan = controller.plan
    environ.update(prepare.pins(plan.gpus, 1, environ)[0])
    worker = register_worker(config, plan, IN_PROCESS, environ)
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
