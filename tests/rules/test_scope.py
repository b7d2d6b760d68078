"""What is in scope, for which reason not, and which cells follow."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.model import CellKey
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.rules.scope import Scope, plan, root_reason
from tests.rules.builders import BOTH, MET, catalog_of, scope_of


def cells(catalog: Catalog, scope: Scope, *gpus: str) -> list[str]:
    return [str(key) for key in plan(catalog, scope, lowerers=BOTH, gpus=gpus)]


@pytest.mark.parametrize(
    ("keys", "asked", "reason"),
    [
        ({}, {}, None),
        ({"when": ["compiler"]}, {}, None),
        ({"when": ["lean"]}, {"conditions": {"lean": "no lakefile"}}, "no lakefile"),
        ({"when": ["lean"]}, {}, "lean was not looked for"),
        ({"when": ["gpu"]}, {}, "no card was asked for"),
        ({"when": ["gpu"]}, {"gpus": 1}, None),
        ({"when": ["gpu"]}, {"gpus": 1, "conditions": {"gpu": "no driver"}}, "no driver"),
        ({"when": ["gpus:2"]}, {}, "no card was asked for"),
        ({"when": ["gpus:2"]}, {"gpus": 1}, "2 cards are needed and 1 asked for"),
        ({"when": ["gpus:2"]}, {"gpus": 2}, None),
        ({"when": ["net"]}, {"conditions": {"net": None}}, "net was not asked for"),
        ({"when": ["net"]}, {"require": ["net"]}, None),
        ({"when": ["net"]}, {"require": ["net"], "conditions": {"net": "no route"}}, None),
        ({"when": ["lean"]}, {"require": ["lean"], "conditions": {"lean": "no lakefile"}}, None),
        ({"when": ["gpus:4"]}, {"require": ["gpus:4"], "gpus": 1}, None),
        ({"when": ["lean", "gpu"]}, {"require": ["lean"]}, "no card was asked for"),
        ({"uncheckable": True}, {}, "uncheckable"),
        ({"lowerers": ["iree"]}, {"lowerers": ("xla",)}, "lowerer iree is not in scope"),
        ({"lowerers": ["xla", "iree"]}, {"lowerers": ("xla",)}, None),
        ({"lowerers": ["xla", "iree"], "pair": True}, {"lowerers": ("xla",)}, "lowerer iree is not in scope"),
        ({"on": "any"}, {"conditions": {"device": "no plugin"}}, "no plugin"),
        (
            {"on": "any", "lowerers": ["iree", "xla"]},
            {"conditions": {"device": "none"}, "lowerers": ("xla",)},
            "none",
        ),
        ({"on": "each"}, {"conditions": {}}, "device was not looked for"),
        ({"on": "host"}, {"conditions": {"device": "no plugin"}}, None),
        (
            {"on": "any", "lowerers": ["iree"]},
            {"conditions": {"device": None, "device:iree": "no shim"}},
            "no shim",
        ),
        ({"on": "any", "lowerers": ["iree"]}, {"conditions": {"device": "none", "device:iree": None}}, None),
    ],
)
def test_a_spec_is_in_scope_or_out_for_a_reason(
    keys: dict[str, Any], asked: dict[str, Any], reason: str | None
) -> None:
    scope = scope_of(catalog_of(s__one=keys), **asked)

    assert (scope.scope_in, scope.scope_out) == (
        (("s.one",), ()) if reason is None else ((), (("s.one", reason),))
    )


def test_a_required_condition_that_is_not_met_is_told() -> None:
    scope = scope_of(catalog_of(s__one={}), require=["lean", "gpus:2"], conditions={"lean": "no lakefile"})

    assert scope.unmet == (("lean", "no lakefile"), ("gpus:2", "no card was asked for"))


def test_an_unknown_condition_can_not_be_required() -> None:
    with pytest.raises(
        UsageError, match=r"unknown condition 'leen' is required; known: gpu, .*gpus:N, device"
    ):
        scope_of(catalog_of(s__one={}), require=["leen"])


def test_a_prerequisite_takes_its_dependents_out_and_the_root_is_told() -> None:
    catalog = catalog_of(s__c={"needs": ["s.b"]}, s__b={"needs": ["s.a"]}, s__a={"when": ["lean"]})

    scope = scope_of(catalog, conditions={"lean": "no lakefile"})

    assert dict(scope.scope_out) == {
        "s.a": "no lakefile",
        "s.b": "no lakefile (needs s.a)",
        "s.c": "no lakefile (needs s.b)",
    }
    assert {root_reason(reason) for _, reason in scope.scope_out} == {"no lakefile"}


def test_a_prerequisite_that_is_out_for_one_lowerer_takes_only_that_one_out() -> None:
    catalog = catalog_of(
        s__compiler={"lowerers": ["iree"], "when": ["compiler"]},
        s__train={"lowerers": ["xla", "iree"], "on": "each", "needs": ["s.compiler"]},
    )

    scope = scope_of(catalog, conditions={"device": None, "compiler": "no compiler"}, gpus=1)

    assert scope.scope_in == ("s.train",)
    assert scope.partly == (("s.train", "iree", "no compiler (needs s.compiler)"),)
    assert cells(catalog, scope, "GPU-a") == ["s.train·xla·GPU-a"]


def test_a_lowerer_that_was_not_chosen_leaves_the_others_their_scope() -> None:
    catalog = catalog_of(
        s__compiler={"lowerers": ["iree"]},
        s__train={"lowerers": ["xla", "iree"], "needs": ["s.compiler"]},
    )

    scope = scope_of(catalog, lowerers=("xla",))

    assert (scope.scope_in, scope.partly) == (("s.train",), ())


@pytest.mark.parametrize(
    ("keys", "inside"),
    [
        ({"lowerers": ["xla"]}, True),
        ({"lowerers": ["iree"]}, False),
        ({"lowerers": ["xla", "iree"], "pair": True}, False),
        ({}, True),
    ],
    ids=["its own lowerer is there", "its own is gone", "a pair needs both", "no lowerer goes on with one"],
)
def test_who_follows_a_prerequisite_that_is_partly_out(keys: dict[str, Any], inside: bool) -> None:  # noqa: FBT001 - a table
    catalog = catalog_of(
        s__compiler={"lowerers": ["iree"], "when": ["compiler"]},
        s__build={"lowerers": ["xla", "iree"], "needs": ["s.compiler"]},
        s__one={"needs": ["s.build"], **keys},
    )

    scope = scope_of(catalog, conditions={"compiler": "none here"})

    assert ("s.one" in scope.scope_in) is inside


def test_specs_that_share_no_lowerer_can_still_need_each_other() -> None:
    catalog = catalog_of(
        s__compiler={"lowerers": ["iree"], "when": ["compiler"]},
        s__one={"lowerers": ["xla"], "needs": ["s.compiler"]},
    )

    assert scope_of(catalog, conditions={"compiler": "none here"}).scope_in == ()


def test_a_required_prerequisite_keeps_its_dependents_in() -> None:
    catalog = catalog_of(s__a={"when": ["lean"]}, s__b={"needs": ["s.a"]})

    assert scope_of(catalog, require=["lean"], conditions={"lean": "no"}).scope_in == ("s.a", "s.b")


@pytest.mark.parametrize(
    ("keys", "gpus", "planned"),
    [
        ({}, ("A", "B"), ["s.one"]),
        ({"on": "any"}, ("A", "B"), ["s.one"]),
        ({"on": "each"}, ("A", "B"), ["s.one·A", "s.one·B"]),
        ({"on": "each"}, (), ["s.one"]),
        ({"on": "each", "lowerers": ["xla", "iree"]}, ("A",), ["s.one·xla·A", "s.one·iree·A"]),
        ({"lowerers": ["xla", "iree"]}, ("A",), ["s.one·xla", "s.one·iree"]),
        ({"lowerers": ["xla", "iree"], "pair": True, "on": "each"}, ("A",), ["s.one·A"]),
    ],
)
def test_cells_are_planned_by_spec_lowerer_and_card(
    keys: dict[str, Any], gpus: tuple[str, ...], planned: list[str]
) -> None:
    catalog = catalog_of(s__one=keys)

    assert cells(catalog, scope_of(catalog, gpus=len(gpus)), *gpus) == planned


def test_the_scope_divides_the_catalogue_and_the_plan_covers_what_is_in() -> None:
    kinds: list[dict[str, Any]] = [
        {"on": on, "lowerers": low}
        for on in ("host", "any", "each")
        for low in ([], ["xla"], ["iree"], ["xla", "iree"])
    ]
    catalog = catalog_of(
        **{f"s__n{number}": {**keys, "when": ["lean"] * (number % 2)} for number, keys in enumerate(kinds)}
    )

    for lowerers in ((), ("xla",), BOTH):
        scope = scope_of(catalog, conditions=MET | {"lean": "no"}, lowerers=lowerers)
        out = [spec for spec, _ in scope.scope_out]
        assert sorted([*scope.scope_in, *out]) == sorted(catalog.specs)
        assert {key.spec for key in plan(catalog, scope, lowerers=lowerers, gpus=())} == set(scope.scope_in)


def test_a_bound_cell_names_its_card() -> None:
    catalog = catalog_of(s__one={"on": "each", "lowerers": ["xla"]})

    assert plan(catalog, scope_of(catalog), lowerers=("xla",), gpus=("GPU-a",)) == (
        CellKey("s.one", "xla", "GPU-a"),
    )
