"""How a process becomes one that runs tests: what it needs for that is imported here, and by nobody else."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

import pytest

from pytest_cudaboot.probes.parent import die_with, may_be_debugged
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.run import first_bad, fixtures, iree, iree_build, lean
from pytest_cudaboot.run.plan import Plan
from pytest_cudaboot.run.stacks import offer, place
from pytest_cudaboot.run.worker import NAME, WORKER, Worker, XdistWorker


def join(config: pytest.Config, environ: MutableMapping[str, str]) -> None:
    """Be the worker that xdist started, for the plan that its controller made."""
    workerinput = config.workerinput  # type: ignore[attr-defined]  # xdist adds it
    plan = Plan.loads(workerinput["cudaboot"])
    die_with(plan.controller)
    may_be_debugged()
    offer(place(Path(plan.workdir), workerinput["workerid"]))
    worker = register_worker(config, plan, workerinput["workerid"], environ)
    config.pluginmanager.register(XdistWorker(config, worker), "cudaboot-xdist-worker")


def register_worker(
    config: pytest.Config, plan: Plan, name: str, environ: MutableMapping[str, str]
) -> Worker:
    """Have this process run tests of the plan."""
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
