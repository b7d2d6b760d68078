"""From options to a planned run: every decision that is made once, by the controller, before collection."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_cudaboot.model import CellKey, Json, RunRecord, to_json
from pytest_cudaboot.probes import toolchain
from pytest_cudaboot.probes.history import History, default_folder
from pytest_cudaboot.project import Project, describe, find_project, sha256
from pytest_cudaboot.report.folder import WORK
from pytest_cudaboot.rules.catalog import Catalog, load_catalog
from pytest_cudaboot.rules.hardware import POLICY
from pytest_cudaboot.rules.scope import Scope, decide_scope, plan
from pytest_cudaboot.rules.selection import in_force
from pytest_cudaboot.rules.waivers import Waiver, load_waivers, waived_cells
from pytest_cudaboot.run.box import Box
from pytest_cudaboot.run.iree_build import build_conditions
from pytest_cudaboot.run.iree_parts import IreeParts, find_iree, iree_conditions
from pytest_cudaboot.run.memory import Memory
from pytest_cudaboot.run.offers import Offers, ask, skews
from pytest_cudaboot.run.plan import Plan
from pytest_cudaboot.run.plugins import Plugins, find_plugins, plugin_conditions
from pytest_cudaboot.run.prepare import Suite
from pytest_cudaboot.run.settings import Settings

NO_CARD = "no card was asked for"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunId:
    """A run's name and when it started, ISO 8601 in UTC."""

    name: str
    started: str

    @classmethod
    def now(cls) -> RunId:
        """Sortable by time, unique on the machine."""
        moment = datetime.now(UTC)
        name = f"{moment:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
        return cls(name=name, started=moment.isoformat(timespec="seconds"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What there is on this machine and in this checkout.

    :param identity: what tells this state of the project from others.
    """

    project: Project
    identity: Json
    plugins: Plugins
    iree: IreeParts
    offers: Offers


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Everything that was asked for and found."""

    config: pytest.Config
    settings: Settings
    suite: Suite
    box: Box
    environ: Mapping[str, str]
    run: RunId
    found: Found
    catalog: Catalog | None
    scope: Scope
    waivers: tuple[Waiver, ...]

    @property
    def lowerers(self) -> tuple[str, ...]:
        return self.settings.lowerers or self.found.offers.names


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembly:
    """A run, ready to start.

    :param problem: a contradiction that another package sees in the toolchain, or null.
    """

    plan: Plan
    catalog: Catalog | None
    record: RunRecord
    waived: frozenset[CellKey]
    problem: str | None = None


def assemble(
    config: pytest.Config, settings: Settings, suite: Suite, box: Box, environ: Mapping[str, str], run: RunId
) -> Assembly:
    """Decide everything.

    :raises UsageError: for a catalogue or project that is not one.
    """
    parts = _parts(config, settings, suite, box, environ, run)
    made = _plan(parts)
    record = _record(parts)
    remembered = Memory(History(default_folder(environ)), record).recall(made.cells)
    return Assembly(
        plan=replace(made, remembered=remembered),
        catalog=parts.catalog,
        record=record,
        waived=waived_cells(parts.waivers, made.cells, datetime.now(UTC).date()),
        problem=skews(config, record.toolchain),
    )


def _parts(
    config: pytest.Config, settings: Settings, suite: Suite, box: Box, environ: Mapping[str, str], run: RunId
) -> Parts:
    """What there is, and what of the catalogue is in scope with that."""
    found = _find(config, settings, box, environ)
    offers = found.offers
    catalog = load_catalog(suite.catalog, offers.names) if suite.catalog else None
    return Parts(
        config=config,
        settings=settings,
        suite=suite,
        box=box,
        environ=environ,
        run=run,
        found=found,
        catalog=catalog,
        scope=_scope(catalog, settings, _conditions(found, box, environ), len(box.gpus), offers),
        waivers=load_waivers(settings.waivers, offers.names) if settings.waivers else (),
    )


def _find(config: pytest.Config, settings: Settings, box: Box, environ: Mapping[str, str]) -> Found:
    project = find_project(settings.project, config.rootpath, settings.document)
    offers = ask(config, project.path, box.platform, environ)
    offers.require(settings.lowerers)
    return Found(
        project=project,
        identity=describe(project, environ),
        plugins=find_plugins(project.path, box, environ),
        iree=find_iree(environ, project, toolchain.package_folders()),
        offers=offers,
    )


def _conditions(found: Found, box: Box, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Each condition of scope: None where it holds, else why not, in a few words."""
    project = found.project
    return {
        "gpu": None if box.gpus else NO_CARD,
        **plugin_conditions(found.plugins, box),
        "git": None if found.identity["commit"] is not None else "git knows the project as no checkout",
        **project.conditions(),
        **iree_conditions(found.iree, project, box.platform, environ),
        **build_conditions(environ, project),
        **found.offers.met,
    }


def _scope(
    catalog: Catalog | None, settings: Settings, met: Mapping[str, str | None], gpus: int, offers: Offers
) -> Scope:
    if catalog is None:
        return Scope(scope_in=(), scope_out=())
    lowerers = settings.lowerers or offers.names
    return decide_scope(catalog, conditions=met, gpus=gpus, lowerers=lowerers, require=settings.require)


def _plan(parts: Parts) -> Plan:
    uuids = [gpu.uuid for gpu in parts.box.gpus]
    catalog, found, project = parts.catalog, parts.found, parts.found.project
    return Plan(
        run=parts.run.name,
        out=str(parts.settings.out),
        workdir=str(parts.settings.out / WORK),
        platform=parts.box.platform,
        gpus=parts.box.gpus,
        plugin=found.plugins.own.path,
        plugin_facts=found.plugins.own.facts,
        cuda_plugin=found.plugins.cuda.path,
        iree=found.iree,
        offers=found.offers,
        project=str(project.path),
        nets=project.nets,
        document=str(project.document) if project.document else None,
        build_line=project.build_line,
        catalog=str(parts.suite.catalog) if parts.suite.catalog else None,
        cells=plan(catalog, parts.scope, lowerers=parts.lowerers, gpus=uuids) if catalog else (),
        partial=_partial(parts),
        controller=os.getpid(),
    )


def _partial(parts: Parts) -> str | None:
    """Why tests may be missing that nobody deselects, because their files are never looked at."""
    if not parts.suite.complete:
        return "only a part of the suite was asked for"
    namespace = parts.config.known_args_namespace
    skipping = {"lf": "--lf", "ignore": "--ignore", "ignore_glob": "--ignore-glob"}
    given = [option for name, option in skipping.items() if getattr(namespace, name, None)]
    return f"{', '.join(given)} may leave out files of the suite" if given else None


def _record(parts: Parts) -> RunRecord:
    return RunRecord(
        run=parts.run.name,
        started=parts.run.started,
        argv=tuple(str(word) for word in parts.config.invocation_params.args),
        platform=parts.box.platform,
        gpus=parts.box.gpus,
        lowerers=parts.lowerers,
        explicit_lowerers=parts.settings.lowerers is not None,
        tracks=parts.settings.tracks,
        require=parts.settings.require,
        scope_in=parts.scope.scope_in,
        scope_out=parts.scope.scope_out,
        scope_partly=parts.scope.partly,
        unmet=parts.scope.unmet,
        simulated=parts.box.simulated,
        project=parts.found.identity,
        catalog=_catalog_facts(parts.catalog),
        box=parts.box.facts,
        toolchain=_toolchain(parts),
        waivers=tuple(waiver.to_json() for waiver in parts.waivers),
    )


def _toolchain(parts: Parts) -> Json:
    found = parts.found
    offered = {offer.name: to_json(offer) for offer in found.offers.lowerers}
    return {
        "plugin": found.plugins.own.facts,
        "iree": {"compiler": found.iree.compiler_facts, "runtime": found.iree.runtime_facts},
        "offers": {**offered, **found.offers.conditions},
        "python": sys.version.split()[0],
        "pytest": pytest.__version__,
        "environment": in_force(parts.environ),
    }


def _catalog_facts(catalog: Catalog | None) -> Json:
    tolerances = Path(__file__).parents[1] / "rules" / "tolerances.toml"
    return {
        "sha256": catalog.sha256 if catalog else None,
        "tolerances_sha256": sha256(tolerances),
        "hardware_sha256": sha256(POLICY),
    }
