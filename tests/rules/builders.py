"""Small catalogues and ledgers for the tests of the judge."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from pytest_cudaboot.model import (
    CellKey,
    EndRecord,
    Gpu,
    ItemRecord,
    PlanRecord,
    Record,
    ResultRecord,
    RunRecord,
    StartRecord,
    Status,
)
from pytest_cudaboot.rules.catalog import Catalog, parse_catalog
from pytest_cudaboot.rules.scope import Scope, decide_scope, plan
from pytest_cudaboot.rules.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

A = Gpu(index=0, uuid="GPU-aa11", name="H200", capability=(9, 0), memory=1, pci="00000000:01:00.0")
B = Gpu(index=1, uuid="GPU-ab22", name="H200", capability=(9, 0), memory=1, pci="00000000:41:00.0")
C = Gpu(index=2, uuid="GPU-cc33", name="L4", capability=(8, 9), memory=1, pci="00000001:01:00.0")
MET: dict[str, str | None] = {"device": None, "compiler": None}
BOTH = ("xla", "iree")


def catalog_of(**specs: Mapping[str, Any]) -> Catalog:
    """A catalogue of steps; `__` in a name stands for the dot of an id."""
    lines: list[str] = []
    for name, keys in specs.items():
        lines.append(f"[{name.replace('__', '.')}]")
        full = {"kind": "step", "title": "Title", "heading": "Step 1", **keys}
        lines += [f"{key} = {_toml(value)}" for key, value in full.items()]
    return toml("\n".join(lines))


def toml(text: str) -> Catalog:
    return parse_catalog(dedent(text).encode(), Path("catalog.toml"))


def _toml(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, int | float | list)
        else f'"{value}"'
    )


def spec_of(**keys: Any) -> Spec:
    return Spec(**{"id": "s.one", "kind": "step", "title": "Title", "heading": "Step 1", **keys})


def scope_of(
    catalog: Catalog,
    *,
    conditions: Mapping[str, str | None] = MET,
    gpus: int = 0,
    lowerers: tuple[str, ...] = BOTH,
    require: Collection[str] = (),
) -> Scope:
    return decide_scope(catalog, conditions=conditions, gpus=gpus, lowerers=lowerers, require=require)


def result(spec: str | None = "s.one", status: Status = Status.PASSED, **facts: Any) -> ResultRecord:
    """A result whose node id says what it is of."""
    told = {"role": "check", "lowerer": None, "gpu": None, **facts}
    parts = [part for part in (told["role"], told["lowerer"], told["gpu"]) if part]
    return ResultRecord(
        **{"nodeid": f"t.py::{spec}[{'-'.join(parts)}]", **told, "spec": spec, "status": status}
    )


def run_record(catalog: Catalog, /, *gpus: Gpu, **facts: Any) -> RunRecord:
    scope = scope_of(catalog, gpus=len(gpus), lowerers=facts.get("lowerers", BOTH))
    given = {
        "run": "r1",
        "started": "2026-12-01T10:00:00+00:00",
        "argv": ("pytest",),
        "platform": "cuda" if gpus else "cpu",
        "gpus": gpus,
        "lowerers": BOTH,
        "explicit_lowerers": False,
        "tracks": ("toolchain", "box"),
        "require": (),
        "scope_in": scope.scope_in,
        "scope_out": scope.scope_out,
        "scope_partly": scope.partly,
        "simulated": False,
        "project": {"name": "reference", "path": "/p"},
        "catalog": {"sha256": catalog.sha256},
        "box": {},
        "toolchain": {},
    }
    return RunRecord(**{**given, **facts})


def passing(run: RunRecord, catalog: Catalog, key: CellKey) -> list[ResultRecord]:
    """What a cell reports when all is well."""
    spec = catalog.specs[key.spec]
    executes = spec.on != "host"
    cards = (key.gpu or run.gpus[0].uuid,) if executes and run.gpus else ()
    platform = run.platform if executes else None
    return [
        result(key.spec, lowerer=key.lowerer, gpu=key.gpu, role=role, platform=platform, gpus=cards)
        for role in spec.roles
        if role != "control"
    ] + [result(key.spec, lowerer=key.lowerer, gpu=key.gpu, role="control")] * ("control" in spec.roles)


def item_of(record: ResultRecord) -> ItemRecord:
    return ItemRecord(
        nodeid=record.nodeid, spec=record.spec, role=record.role, lowerer=record.lowerer, gpu=record.gpu
    )


def ledger(
    catalog: Catalog, run: RunRecord, *changed: ResultRecord, end: EndRecord | None = None
) -> list[Record]:
    """A ledger in which every planned cell passes, but for the results that are given by node id."""
    scope = Scope(scope_in=run.scope_in, scope_out=run.scope_out, partly=run.scope_partly)
    cells = plan(catalog, scope, lowerers=run.lowerers, gpus=[gpu.uuid for gpu in run.gpus])
    results = {record.nodeid: record for key in cells for record in passing(run, catalog, key)}
    results |= {record.nodeid: record for record in changed}
    records: list[Record] = [run, PlanRecord(cells=cells)]
    records += [item_of(record) for record in results.values()]
    for record in results.values():
        records += [StartRecord(nodeid=record.nodeid, worker="gw0"), record]
    return [*records, end or EndRecord(finished="2026-12-01T10:05:00+00:00", interrupted=None)]
