"""A catalogue is read whole or refused, and the refusal names file, table and key."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.model import CellKey, ItemRecord
from pytest_cudaboot.rules.catalog import Spec, bind_problems, load_catalog
from tests.rules.builders import catalog_of, scope_of, toml

FULL = """
[step4.sm89-unset]
kind = "gotcha"
canary = "upstream"
title = "leave IREE_CHIP unset"
heading = "Step 4"
track = "box"
needs = ["step2.version"]
when = ["compiler", "gpus:2"]
on = "each"
lowerers = ["iree"]
budget = 12.5
upstream = ["iree-org/iree#21122"]
may = ["unsupported"]

[step2.version]
kind = "step"
title = "it runs"
heading = "Step 2"

[step4.later]
kind = "claim"
title = "fast"
heading = "Step 4"
"""


def test_every_key_is_read() -> None:
    spec = toml(FULL).specs["step4.sm89-unset"]

    assert (spec.kind, spec.canary, spec.track, spec.on) == ("gotcha", "upstream", "box", "each")
    assert (spec.needs, spec.when, spec.lowerers) == (("step2.version",), ("compiler", "gpus:2"), ("iree",))
    assert (spec.budget, spec.upstream, spec.may) == (12.5, ("iree-org/iree#21122",), ("unsupported",))


def test_what_is_not_said_has_a_default() -> None:
    spec = toml(FULL).specs["step2.version"]

    assert spec == Spec(id="step2.version", kind="step", title="it runs", heading="Step 2")
    assert (spec.track, spec.on, spec.budget, spec.gate) == ("toolchain", "host", 120.0, True)


def test_a_claim_is_no_gate_by_itself() -> None:
    assert toml(FULL).specs["step4.later"].gate is False


def test_specs_stand_in_file_order_although_toml_groups_them() -> None:
    assert list(toml(FULL).specs) == ["step4.sm89-unset", "step2.version", "step4.later"]


def test_the_digest_is_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(FULL)

    catalog = load_catalog(path)

    assert (catalog.path, catalog.sha256) == (path, hashlib.sha256(FULL.encode()).hexdigest())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"gone\.toml: can not be read: No such file"):
        load_catalog(tmp_path / "gone.toml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"# \xff")

    with pytest.raises(CatalogError, match=r"c\.toml: is not UTF-8 at byte 2"):
        load_catalog(path)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kind": "stepp"}, "[s.one]: kind: 'stepp' is not one of step, gotcha, claim, consistency"),
        ({"title": " "}, "title: ' ' is not a text with something in it"),
        ({"heading": 3}, "heading: 3 is not a text"),
        ({"colour": "red"}, "colour: unknown key; known: kind, title, heading, track"),
        ({"track": "tools"}, "track: 'tools' is not one of toolchain, box, document, proofs"),
        ({"on": "card"}, "on: 'card' is not one of host, any, each"),
        ({"lowerers": ["tpu"]}, "lowerers: 'tpu' is not one of xla, iree"),
        ({"lowerers": ["xla", "xla"]}, "lowerers: 'xla' stands there twice"),
        ({"lowerers": "xla"}, "lowerers: 'xla' is not a list of texts"),
        ({"when": ["gpus:0"]}, "when: 'gpus:0' is not one of gpu, cuda-plugin"),
        ({"when": [""]}, "when: [''] is not a list of texts"),
        ({"when": [3]}, "when: [3] is not a list of texts"),
        ({"when": ["cuda"]}, "when: 'cuda' is not one of"),
        ({"kind": "gotcha"}, "canary: a gotcha needs one of upstream, guard"),
        ({"canary": "guard"}, "canary: only a gotcha has a canary, and this is a step"),
        ({"kind": "gotcha", "canary": "us"}, "canary: 'us' is not one of upstream, guard"),
        ({"kind": "claim", "gate": True}, "gate: a claim never decides"),
        ({"gate": 1}, "gate: 1 is neither true nor false"),
        ({"budget": -1}, "budget: -1 is not a positive number of seconds"),
        ({"budget": float("inf")}, "budget: inf is not a positive number of seconds"),
        ({"budget": 0}, "budget: 0 is not a positive number of seconds"),
        ({"budget": True}, "budget: True is not a number of seconds"),
        ({"pair": True}, "pair: a pair needs at least two lowerers, and has []"),
        ({"pair": True, "lowerers": ["xla"]}, "pair: a pair needs at least two lowerers, and has ['xla']"),
        ({"may": ["fail"]}, "may: 'fail' is not one of unsupported"),
        ({"needs": ["s.one"]}, "needs: 's.one' is the spec itself"),
        ({"needs": ["s.tow"]}, "needs: no spec 's.tow'; did you mean 's.two'?"),
        ({"needs": ["s.claim"]}, "needs: 's.claim' is no gate spec"),
        ({"needs": ["s.talk"]}, "needs: 's.talk' is uncheckable"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_malformed_spec_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(CatalogError, match=re.escape(words)) as caught:
        catalog_of(s__one=keys, s__two={}, s__claim={"kind": "claim"}, s__talk={"uncheckable": True})

    assert "catalog.toml: [s.one]: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a", "catalog.toml: is not TOML: "),
        ("a = 1", "catalog.toml: a: 1 stands outside of a spec's table"),
        ("[a.b]", "catalog.toml: [a.b]: kind: is missing"),
        ("[a.b]\nkind = 'step'\nheading = 'h'", "[a.b]: title: is missing"),
        ("[a.b]\nkind = 'step'\ntitle = 't'", "[a.b]: heading: is missing"),
        ("[a.'b c']\nkind = 'step'", "[a.b c]: an id is made of letters"),
        ("[a]\nkind = 'step'\ntitle = 't'\nheading = 'h'\n[a.b]\nkind = 'step'", "[a]: b: unknown key"),
        ("[a.b]\nkind = 'step'\n[a.b]\n", "is not TOML: "),
    ],
)
def test_a_malformed_file_is_refused(text: str, words: str) -> None:
    with pytest.raises(CatalogError, match=re.escape(words)):
        toml(text)


def test_one_id_in_two_spellings_is_refused() -> None:
    spec = "kind = 'step'\ntitle = 't'\nheading = 'h'\n"

    with pytest.raises(CatalogError, match=r"\[a\.b\]: stands there twice"):
        toml(f"[a.b]\n{spec}['a.b']\n{spec}")


def test_a_cycle_is_named_from_dependent_to_prerequisite() -> None:
    with pytest.raises(
        CatalogError, match=r"a cycle: (s\.a -> s\.b -> s\.c -> s\.a|s\.b .* s\.b|s\.c .* s\.c)"
    ):
        catalog_of(s__a={"needs": ["s.b"]}, s__b={"needs": ["s.c"]}, s__c={"needs": ["s.a"]})


@pytest.mark.parametrize(
    ("keys", "roles"),
    [
        ({}, ("check",)),
        ({"kind": "gotcha", "canary": "guard"}, ("check", "canary")),
        ({"kind": "gotcha", "canary": "upstream"}, ("check", "canary", "control")),
    ],
)
def test_a_kind_has_its_roles(keys: dict[str, Any], roles: tuple[str, ...]) -> None:
    assert catalog_of(s__one=keys).specs["s.one"].roles == roles


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({}, CellKey("s.one")),
        ({"lowerers": ["xla"]}, CellKey("s.one", "xla")),
        ({"lowerers": ["xla", "iree"]}, CellKey("s.one", "iree")),
        ({"lowerers": ["xla", "iree"], "pair": True}, CellKey("s.one")),
        ({"on": "any"}, CellKey("s.one")),
        ({"on": "each"}, CellKey("s.one", None, "GPU-a")),
    ],
)
def test_a_test_speaks_for_the_cell_that_its_spec_has(keys: dict[str, Any], key: CellKey) -> None:
    lowerer = None if keys.get("lowerers") == ["xla"] else "iree"

    assert catalog_of(s__one=keys).specs["s.one"].key(lowerer, "GPU-a") == key


BOUND = catalog_of(
    s__step={},
    s__trap={"kind": "gotcha", "canary": "guard"},
    s__both={"lowerers": ["xla", "iree"]},
    s__xla={"lowerers": ["xla"]},
    s__pair={"lowerers": ["xla", "iree"], "pair": True},
    s__talk={"uncheckable": True},
    s__lean={"when": ["lean"]},
)


def item(spec: str | None, role: str = "check", lowerer: str | None = None) -> ItemRecord:
    return ItemRecord(nodeid="t.py::t", spec=spec, role=role, lowerer=lowerer, gpu=None)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (item("s.stepp"), "t.py::t: names the unknown spec 's.stepp'; did you mean 's.step'?"),
        (item("s.step", "chec"), "unknown role 'chec'; known: check, canary, control"),
        (item("s.step", "canary"), "role 'canary' does not belong to 's.step', which has: check"),
        (item("s.trap", "control"), "role 'control' does not belong to 's.trap', which has: check, canary"),
        (item("s.talk"), "spec 's.talk' is uncheckable, so it can not have a test"),
        (item("s.both"), "spec 's.both' has a cell for each of xla, iree; the test names none"),
        (item("s.xla", lowerer="iree"), "spec 's.xla' has no cell for lowerer 'iree', only for xla"),
        (item("s.pair", lowerer="xla"), "spec 's.pair' is a pair, so its tests see all lowerers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_test_that_does_not_fit_is_named(record: ItemRecord, words: str) -> None:
    problems = bind_problems(BOUND, [record], ["s.step", "s.trap", "s.both", "s.xla", "s.pair"])

    assert [problem for problem in problems if words in problem]


@pytest.mark.parametrize(
    "record",
    [
        item(None),
        item("s.step"),
        item("s.step", lowerer="xla"),
        item("s.both", lowerer="iree"),
        item("s.xla"),
        item("s.lean"),
    ],
)
def test_a_test_that_fits_is_no_problem(record: ItemRecord) -> None:
    assert bind_problems(BOUND, [record], [record.spec] if record.spec else []) == []


def test_a_spec_in_scope_without_a_test_is_named() -> None:
    scope = scope_of(BOUND, lowerers=())

    assert bind_problems(BOUND, [item("s.step")], scope.scope_in) == [
        "spec 's.trap' is in scope and has no test"
    ]


def test_a_test_of_a_spec_out_of_scope_need_not_name_a_lowerer() -> None:
    assert bind_problems(BOUND, [item("s.both")], []) == []
