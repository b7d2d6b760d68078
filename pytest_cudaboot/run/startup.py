"""How a run begins: first the verdict of yesterday is withdrawn, then everything is decided and registered."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.probes.parent import die_with
from pytest_cudaboot.report import files
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.verdict import running, usage
from pytest_cudaboot.run import fixtures, prepare
from pytest_cudaboot.run.assemble import Assembly, RunId, assemble
from pytest_cudaboot.run.box import Box, choose
from pytest_cudaboot.run.controller import Controller
from pytest_cudaboot.run.inprocess import InProcess
from pytest_cudaboot.run.options import Settings, read_settings
from pytest_cudaboot.run.plan import Plan
from pytest_cudaboot.run.worker import IN_PROCESS, NAME, WORKER, Worker


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What was decided before conftests were loaded.

    :param pins: one environment a worker; empty where tests run in this process.
    :param lock: descriptor that holds the output folder, or null with `--collect-only`.
    """

    assembly: Assembly
    box: Box
    pins: tuple[dict[str, str], ...]
    notes: tuple[str, ...]
    lock: int | None


START: pytest.StashKey[Start] = pytest.StashKey()


def before_conftests(
    config: pytest.Config, args: list[str], environ: MutableMapping[str, str], *, worker: bool
) -> None:
    """Name the suite in every process; in the controller decide everything, and how many workers there are."""
    try:
        settings = read_settings(config)
        namespace = config.known_args_namespace
        suite = prepare.find_suite(
            namespace.file_or_dir, config.invocation_params.dir, config.rootpath, settings.catalog
        )
        if not worker:
            _decide(config, settings, suite, args, environ)
        prepare.insert(config, args, suite.arguments)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def configure(config: pytest.Config, environ: MutableMapping[str, str]) -> None:
    """Register what this process is: a worker, a controller, or both."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is None:
        _configure_controller(config, config.stash[START], environ)
        return
    plan = Plan.loads(workerinput["cudaboot"])
    die_with(plan.controller)
    from pytest_cudaboot.run.worker import XdistWorker

    worker = _register_worker(config, plan, workerinput["workerid"], environ)
    config.pluginmanager.register(XdistWorker(config, worker), "cudaboot-xdist-worker")


def _decide(
    config: pytest.Config,
    settings: Settings,
    suite: prepare.Suite,
    args: list[str],
    environ: MutableMapping[str, str],
) -> None:
    """The controller's part. A usage error after the withdrawal is written into the verdict as well."""
    run = RunId.now()
    judged = not config.known_args_namespace.collectonly
    lock = files.claim(settings.out) if judged else None
    if judged:
        files.write_verdict(settings.out, running(run.name, run.started))
    try:
        config.stash[START] = _start(config, settings, suite, args, environ, run, lock)
    except UsageError as error:
        if judged:
            files.write_verdict(settings.out, usage(run.name, run.started, str(error)))
        raise


def _start(
    config: pytest.Config,
    settings: Settings,
    suite: prepare.Suite,
    args: list[str],
    environ: MutableMapping[str, str],
    run: RunId,
    lock: int | None,
) -> Start:
    namespace = config.known_args_namespace
    xdist = config.pluginmanager.hasplugin("xdist")
    if xdist:
        prepare.check_distribution(namespace)
    box = choose(settings.gpus, environ)
    workers = prepare.wants_workers(namespace, xdist=xdist) and box.problem is None
    if not workers and len(box.gpus) > 1 and not namespace.collectonly:
        raise UsageError(
            f"--gpus names {len(box.gpus)} cards, and without workers there is one process for one"
        )
    assembly = assemble(config, settings, suite, box, environ, run)
    hosts = prepare.host_workers(len(os.sched_getaffinity(0)), len(box.gpus))
    if workers:
        args[:0] = prepare.worker_arguments(len(box.gpus), hosts)
    return Start(
        assembly=assembly,
        box=box,
        pins=prepare.pins(box.gpus, hosts) if workers else (),
        notes=() if workers else ("tests run in this process: a crash of one ends the run",),
        lock=lock,
    )


def _configure_controller(config: pytest.Config, start: Start, environ: MutableMapping[str, str]) -> None:
    assembly = start.assembly
    if config.known_args_namespace.collectonly:
        _register_worker(config, assembly.plan, IN_PROCESS, environ)
        return
    controller = Controller(
        config,
        assembly.plan,
        assembly.catalog,
        assembly.record,
        waived=assembly.waived,
        problem=start.box.problem,
        notes=start.notes,
    )
    config.pluginmanager.register(controller, "cudaboot-controller")
    if start.pins:
        from pytest_cudaboot.run.controller import WorkerPins

        config.pluginmanager.register(WorkerPins(controller, start.pins), "cudaboot-pins")
        return
    environ.update(prepare.pins(assembly.plan.gpus, 1)[0])
    worker = _register_worker(config, assembly.plan, IN_PROCESS, environ)
    config.pluginmanager.register(InProcess(controller, worker), "cudaboot-in-process")


def _register_worker(
    config: pytest.Config, plan: Plan, name: str, environ: MutableMapping[str, str]
) -> Worker:
    catalog = load_catalog(Path(plan.catalog)) if plan.catalog else None
    worker = Worker(plan, catalog, name, environ)
    config.stash[WORKER] = worker
    config.pluginmanager.register(worker, NAME)
    config.pluginmanager.register(fixtures, "cudaboot-fixtures")
    return worker
