"""Which cells wait for which, and what a broken one means for the others."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cudaboot.model import CellKey, Outcome
from pytest_cudaboot.rules.cells import Graph, Readiness, prerequisites
from pytest_cudaboot.rules.scope import plan
from tests.rules.builders import BOTH, catalog_of, scope_of

X, I = ["xla"], ["xla", "iree"]  # noqa: E741 - columns of a table


@pytest.mark.parametrize(
    ("need", "spec", "key", "waits_for"),
    [
        ({}, {}, CellKey("s.one"), ["s.need"]),
        ({}, {"on": "each"}, CellKey("s.one", None, "A"), ["s.need"]),
        ({}, {"on": "each", "lowerers": I}, CellKey("s.one", "iree", "B"), ["s.need"]),
        ({"lowerers": I}, {"lowerers": I}, CellKey("s.one", "iree"), ["s.need·iree"]),
        ({"lowerers": I}, {}, CellKey("s.one"), ["s.need·xla", "s.need·iree"]),
        ({"lowerers": X}, {"lowerers": I}, CellKey("s.one", "iree"), []),
        ({"lowerers": X}, {"lowerers": ["iree"]}, CellKey("s.one", "iree"), ["s.need·xla"]),
        ({"lowerers": I}, {"lowerers": I, "pair": True}, CellKey("s.one"), ["s.need·xla", "s.need·iree"]),
        ({"lowerers": I, "pair": True}, {"lowerers": I}, CellKey("s.one", "xla"), ["s.need"]),
        (
            {"on": "any", "lowerers": I},
            {"on": "each", "lowerers": I},
            CellKey("s.one", "xla", "A"),
            ["s.need·xla"],
        ),
        ({"on": "each"}, {"on": "each"}, CellKey("s.one", None, "B"), ["s.need·B"]),
        ({"on": "each"}, {"on": "any"}, CellKey("s.one"), ["s.need·A", "s.need·B"]),
        (
            {"on": "each", "lowerers": I},
            {"on": "any", "lowerers": I},
            CellKey("s.one", "xla"),
            ["s.need·xla·A", "s.need·xla·B"],
        ),
        (
            {"on": "each", "lowerers": I},
            {"on": "each", "lowerers": I},
            CellKey("s.one", "xla", "A"),
            ["s.need·xla·A"],
        ),
    ],
    ids=[
        "host by host",
        "host counts for each card",
        "host without a lowerer counts for all",
        "same lowerer",
        "without a lowerer: all of them",
        "a lowerer that the prerequisite does not have",
        "no lowerer in common: the whole",
        "a pair waits for both",
        "a pair counts for each",
        "any counts for each card",
        "same card",
        "any waits for every card",
        "any waits for every card of its lowerer",
        "same lowerer and card",
    ],
)
def test_a_cell_waits_for(
    need: dict[str, Any], spec: dict[str, Any], key: CellKey, waits_for: list[str]
) -> None:
    catalog = catalog_of(s__need=need, s__one={"needs": ["s.need"], **spec})
    cells = plan(catalog, scope_of(catalog, gpus=2), lowerers=BOTH, gpus=("A", "B"))

    assert key in cells
    assert [str(cell) for cell in prerequisites(catalog, cells, key)] == waits_for


CATALOG = catalog_of(
    s__c={"on": "each", "needs": ["s.b"]}, s__b={"on": "each", "needs": ["s.a"]}, s__a={}, s__free={}
)
CELLS = plan(CATALOG, scope_of(CATALOG, gpus=2), lowerers=BOTH, gpus=("A", "B"))
GRAPH = Graph.over(CATALOG, CELLS)
ROOT, MIDDLE, LEAF = CellKey("s.a"), CellKey("s.b", None, "A"), CellKey("s.c", None, "A")


def test_each_cell_comes_after_its_prerequisites() -> None:
    order = GRAPH.order()

    assert sorted(order) == sorted(CELLS)
    assert all(order.index(need) < order.index(key) for key in CELLS for need in GRAPH.prerequisites(key))


@pytest.mark.parametrize(
    ("outcome", "readiness"),
    [
        (None, Readiness(waits=True)),
        (Outcome.HOLDS, Readiness()),
        (Outcome.EXPIRED, Readiness()),
        (Outcome.WAIVED, Readiness()),
        (Outcome.UNSUPPORTED, Readiness()),
        (Outcome.BROKEN, Readiness(by=ROOT)),
        (Outcome.NOT_RUN, Readiness(by=ROOT)),
    ],
)
def test_a_prerequisite_decides_whether_a_cell_may_start(
    outcome: Outcome | None, readiness: Readiness
) -> None:
    assert GRAPH.readiness(MIDDLE, {ROOT: outcome}) == readiness


def test_a_prerequisite_that_was_left_out_holds_nothing_up() -> None:
    assert GRAPH.readiness(MIDDLE, {}) == Readiness()


def test_a_blocked_cell_names_the_root() -> None:
    outcomes = {ROOT: Outcome.BROKEN, MIDDLE: Outcome.BLOCKED}

    assert GRAPH.readiness(LEAF, outcomes) == Readiness(by=ROOT)


def test_what_is_broken_on_one_card_blocks_that_card_alone() -> None:
    outcomes: dict[CellKey, Outcome | None] = {
        MIDDLE: Outcome.BROKEN,
        CellKey("s.b", None, "B"): Outcome.HOLDS,
    }

    assert GRAPH.readiness(LEAF, outcomes) == Readiness(by=MIDDLE)
    assert GRAPH.readiness(CellKey("s.c", None, "B"), outcomes) == Readiness()


NEEDY = catalog_of(s__all={"on": "any", "needs": ["s.one"]}, s__one={"on": "each"}, s__free={"on": "any"})
SPREAD = plan(NEEDY, scope_of(NEEDY, gpus=2), lowerers=BOTH, gpus=("A", "B"))
ALL, ON_A, ON_B = CellKey("s.all"), CellKey("s.one", None, "A"), CellKey("s.one", None, "B")


@pytest.mark.parametrize(
    ("on_a", "on_b", "root"),
    [
        (Outcome.BROKEN, Outcome.BROKEN, ON_A),
        (Outcome.NOT_RUN, Outcome.BROKEN, ON_B),
        (Outcome.NOT_RUN, Outcome.NOT_RUN, ON_A),
        (Outcome.WAIVED, Outcome.BROKEN, ON_B),
        (Outcome.HOLDS, Outcome.HOLDS, None),
    ],
)
def test_of_all_that_stops_a_cell_the_first_broken_one_is_named(
    on_a: Outcome, on_b: Outcome, root: CellKey | None
) -> None:
    outcomes: dict[CellKey, Outcome | None] = {ON_A: on_a, ON_B: on_b, ALL: Outcome.BLOCKED}

    assert Graph.over(NEEDY, SPREAD).root(ALL, outcomes) == root


def test_the_root_of_a_chain_is_its_begin() -> None:
    outcomes: dict[CellKey, Outcome | None] = {ROOT: Outcome.BROKEN, MIDDLE: Outcome.BLOCKED}

    assert GRAPH.root(LEAF, outcomes) == ROOT
