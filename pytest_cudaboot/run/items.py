"""Tests and cells: which cell a test speaks for, and what it takes to run it. Every worker decides the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.model import CellKey, ItemRecord, Json, to_json
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.rules.timetable import NOTHING
from pytest_cudaboot.run.lanes import CARD, HOST
from pytest_cudaboot.run.plan import Plan

CELL = "_cudaboot_cell"  # the autouse fixture that carries a test's cell
# What may touch a device, whatever it is asked through: `fixturenames` has what a fixture asks for in turn.
DEVICE_FIXTURES = frozenset({"gpu", "open_lowerer", "run"})


def spec_of(definition: pytest.Item | pytest.FixtureRequest | pytest.Function) -> tuple[str, str] | None:
    """The spec id and role in a test's mark, or None."""
    mark = definition.get_closest_marker("spec")  # type: ignore[union-attr]
    if mark is None:
        return None
    if len(mark.args) != 1 or set(mark.kwargs) - {"role"}:
        raise CatalogError(f"@pytest.mark.spec takes one id and role=, not {mark.args!r} {mark.kwargs!r}")
    return str(mark.args[0]), str(mark.kwargs.get("role", "check"))


def cells_of(plan: Plan, spec: str) -> list[CellKey]:
    """The planned cells of a spec; an unplanned one has a single stand-in, so that its test is collected."""
    return [cell for cell in plan.cells if cell.spec == spec] or [CellKey(spec)]


def cell_id(cell: CellKey) -> str:
    """A cell's part of a test id: `xla`, `xla-GPU-1a2b3c4d`, or `host` where nothing else tells."""
    card = cell.gpu[:12] if cell.gpu else None
    return "-".join(part for part in (cell.lowerer, card) if part) or HOST


def cell_of(item: pytest.Item) -> CellKey | None:
    """The cell that an item was parametrized with."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get(CELL) if callspec is not None else None
    return found if isinstance(found, CellKey) else None


def record_of(item: pytest.Item) -> ItemRecord:
    """An item as the ledger names it."""
    named, cell = spec_of(item), cell_of(item)
    spec, role = named or (None, "check")
    lowerer, gpu = (cell.lowerer, cell.gpu) if cell else (None, None)
    return ItemRecord(nodeid=item.nodeid, spec=spec, role=role, lowerer=lowerer, gpu=gpu)


def bring_up_order(catalog: Catalog) -> list[str]:
    """Spec ids in the catalogue's order, but each after what it needs."""
    order: dict[str, None] = {}

    def visit(ident: str) -> None:
        if ident not in order:
            for need in catalog.specs[ident].needs:
                visit(need)
            order[ident] = None

    for ident in catalog.specs:
        visit(ident)
    return list(order)


def lane_of(item: pytest.Item, plan: Plan, catalog: Catalog | None) -> str:
    """`host`, `card`, or the UUID of the card that the item is bound to."""
    if plan.platform != "cuda":
        return HOST
    cell = cell_of(item)
    if cell is not None and cell.gpu:
        return cell.gpu
    if cell is not None and catalog is not None and cell.spec in catalog.specs:
        return HOST if catalog.specs[cell.spec].on == "host" else CARD
    return CARD if DEVICE_FIXTURES & set(getattr(item, "fixturenames", ())) else HOST


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What it takes to run an item.

    :param lane: `host`, `card`, or the UUID of the card that it is bound to.
    :param cards: how many it takes at once.
    :param warm: the lowerer that it leaves warm, empty if it clears its card; null if it touches none.
    :param key: what its duration is remembered by; empty where nothing tells it from other tests.
    :param seconds: how long it is expected to take; the controller knows, not the worker.
    """

    lane: str
    cards: int = 1
    warm: str | None = None
    key: tuple[str, ...] = ()
    seconds: float = 0.0


def tasks_of(items: Sequence[pytest.Item], plan: Plan, catalog: Catalog | None) -> tuple[Task, ...]:
    """The items' tasks. Tests of one cell that only their names tell apart are numbered, since names differ between
    a clone and an installation.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    tasks = []
    for item in items:
        task = _task(item, plan, catalog)
        seen[task.key] += 1
        tasks.append(replace(task, key=(*task.key, str(seen[task.key]))) if task.key else task)
    return tuple(tasks)


def _task(item: pytest.Item, plan: Plan, catalog: Catalog | None) -> Task:
    cell = cell_of(item)
    spec = catalog.specs.get(cell.spec) if cell is not None and catalog is not None else None
    fixtures = set(getattr(item, "fixturenames", ()))
    lane = lane_of(item, plan, catalog)
    warm = None if lane == HOST else _leaves(fixtures, cell.lowerer if cell else None)
    cards = spec.cards if spec is not None else 1
    key = _key(item, cell, plan) if spec is not None else ()
    return Task(lane=lane, cards=cards, warm=warm, key=key)


def _leaves(fixtures: set[str], lowerer: str | None) -> str | None:
    """What a test leaves warm on its card.

    :param lowerer: its cell's; null says nothing of what a test opens by name, which may be several.
    """
    if fixtures & {"lowerer", "session"}:
        return lowerer or "xla"
    if "open_lowerer" in fixtures:
        return lowerer or NOTHING
    return NOTHING if "run" in fixtures else None


def _key(item: pytest.Item, cell: CellKey | None, plan: Plan) -> tuple[str, ...]:
    """What makes two runs of a test take the same time: what it does, with what, on which kind of card."""
    named = spec_of(item)
    callspec = getattr(item, "callspec", None)
    net = callspec.params.get("net", "") if callspec is not None else ""
    own = plan.gpu(cell.gpu) if cell else None
    cards = sorted({gpu.name for gpu in ((own,) if own else plan.gpus)})
    plugin = plan.plugin_facts.get("version") or ""
    spec, role = named or ("", "")
    return (spec, role, (cell.lowerer if cell else None) or "", net, plan.platform, *cards, str(plugin))


@dataclass(frozen=True, kw_only=True, slots=True)
class Collection:
    """What was collected, and what was not kept.

    :param tasks: what it takes to run each item.
    :param deselected: node ids of tests in scope that the user's selection left out.
    :param outside: ids of the specs that are out of scope and have a test.
    """

    items: tuple[ItemRecord, ...]
    tasks: tuple[Task, ...]
    deselected: tuple[str, ...]
    outside: tuple[str, ...]


def write_facts(path: Path, collection: Collection) -> None:
    """Leave a collection where the controller finds it; complete or not there at all."""
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(to_json(collection)))
    scratch.replace(path)


def read_facts(path: Path) -> Collection:
    """What a worker left."""
    facts: Json = json.loads(path.read_text())
    return Collection(
        items=tuple(ItemRecord(**record) for record in facts["items"]),
        tasks=tuple(Task(**{**task, "key": tuple(task["key"])}) for task in facts["tasks"]),
        deselected=tuple(facts["deselected"]),
        outside=tuple(facts["outside"]),
    )
