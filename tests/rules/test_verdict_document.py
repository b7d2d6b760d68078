"""The published document: every key, its schema, and the line that is printed first."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from pytest_cudaboot.model import Json, Status
from pytest_cudaboot.rules.ledger_lines import read_ledger, write_line
from pytest_cudaboot.rules.verdict import environment, judge, running, summary_line, usage
from tests.rules.builders import A, B, C, catalog_of, ledger, result, run_record
from tests.rules.runs import CATALOG, WAIVER, F, judged, train
from tests.rules.verdict_rows import ROWS

SCHEMA: Json = json.loads(files("pytest_cudaboot").joinpath("schema/verdict.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
TOP = (
    *("schema", "run", "verdict", "exit", "reasons", "tracks", "scope", "simulated", "project", "catalog"),
    *("box", "toolchain", "waivers", "cells", "ledger", "started", "finished"),
)
CELL = (
    *("spec", "kind", "track", "heading", "gate", "lowerer", "platform", "gpus", "outcome", "cause", "blame"),
    *("reason", "class", "seconds", "attempts", "measurements", "evidence", "nodeids"),
)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_asks_for_every_key_of_the_design() -> None:
    assert tuple(SCHEMA["required"]) == TOP
    assert tuple(SCHEMA["$defs"]["cell"]["required"]) == CELL
    assert SCHEMA["properties"]["project"]["required"] == ["path", "name", "commit", "dirty", "artifacts"]
    assert SCHEMA["properties"]["scope"]["required"] == ["in", "out"]
    assert SCHEMA["properties"]["catalog"]["required"] == ["sha256", "tolerances_sha256"]
    assert SCHEMA["properties"]["ledger"]["required"] == ["planned", "reported", "lost"]


@pytest.mark.parametrize("name", ROWS)
def test_every_verdict_is_valid(name: str) -> None:
    verdict = ROWS[name][0]

    VALIDATOR.validate(verdict)
    assert set(TOP) <= set(verdict)


@pytest.mark.parametrize(
    ("placeholder", "verdict", "exit_", "reason"),
    [
        (running("r1", "now"), "incomplete", 12, "running"),
        (usage("r1", "now", "no GPU '7'", finished="later"), "incomplete", 4, "no GPU '7'"),
        (environment("r1", "now", "NVML is silent"), "environment", 13, "NVML is silent"),
        (judge(CATALOG, []), "incomplete", 12, "the ledger has no first line: nothing is known of the run"),
    ],
)
def test_a_run_without_a_ledger_has_a_valid_verdict_too(
    placeholder: Json, verdict: str, exit_: int, reason: str
) -> None:
    VALIDATOR.validate(placeholder)
    assert (placeholder["verdict"], placeholder["exit"], placeholder["reasons"]) == (verdict, exit_, [reason])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("verdict",), "accepted"),
        (("exit",), 12),
        (("simulated",), True),
        (("ledger", "lost"), ["t.py::t"]),
        (("tracks", "toolchain"), "fine"),
        (("tracks", "tools"), "accept"),
        (("cells", 0, "outcome"), "passed"),
        (("cells", 0, "cause"), "crash"),
        (("cells", 0, "kind"), "test"),
        (("cells", 0, "lowerer"), 3),
        (("cells", 0, "platform"), "rocm"),
        (("cells", 0, "gpus"), [{"index": 0}]),
        (("catalog", "sha256"), "abc"),
        (("schema",), "2"),
        (("finished",), 3),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_the_schema_refuses_what_an_accept_can_not_say(place: tuple[Any, ...], value: object) -> None:
    verdict = json.loads(json.dumps(judged()))
    *path, last = place
    target = verdict
    for step in path:
        target = target[step]
    target[last] = value

    with pytest.raises(ValidationError):
        VALIDATOR.validate(verdict)


def test_a_key_may_be_added_anywhere() -> None:
    verdict = judged()

    VALIDATOR.validate(verdict | {"news": 1, "cells": [{**verdict["cells"][0], "news": 1}]})


def test_a_cell_tells_where_it_ran_and_what_it_measured() -> None:
    done = train(Status.PASSED, platform="cuda", gpus=(A.uuid,), seconds=1.25, measurements={"loss": 0.5})
    cell = next(
        cell for cell in judged(done)["cells"] if cell["lowerer"] == "xla" and cell["spec"] == "s.train"
    )

    assert (cell["platform"], cell["seconds"], cell["attempts"]) == ("cuda", 1.25, 1)
    assert cell["gpus"] == [{"index": 0, "uuid": A.uuid, "name": "H200"}]
    assert (cell["measurements"], cell["nodeids"]) == ({"loss": 0.5}, [done.nodeid])


def test_figures_of_two_tests_that_share_a_name_are_both_kept() -> None:
    catalog = catalog_of(s__one={"on": "any"})
    both = [
        result(nodeid=f"t.py::t[{net}]", measurements={"loss": loss}) for net, loss in (("a", 1), ("b", 2))
    ]

    (cell,) = judge(catalog, ledger(catalog, run_record(catalog), *both))["cells"]

    assert cell["measurements"] == {"loss": 1, "t[b]:loss": 2}


def test_a_host_cell_has_no_platform() -> None:
    assert {cell["spec"]: cell["platform"] for cell in judged()["cells"]}["s.build"] is None


def test_a_waived_cell_tells_what_it_would_be() -> None:
    verdict = judged(train(F), waivers=(WAIVER,))
    cell = next(cell for cell in verdict["cells"] if cell["outcome"] == "waived")

    assert (cell["would_be"], cell["cause"]) == ("broken", "assertion")
    assert [waiver["state"] for waiver in verdict["waivers"]] == ["used"]


@pytest.mark.parametrize(
    ("waiver", "broken", "state"),
    [
        (WAIVER, True, "used"),
        (WAIVER, False, "not needed"),
        (WAIVER | {"expires": "2026-01-01"}, True, "expired on 2026-01-01"),
        (WAIVER | {"spec": "s.gone"}, True, "matches nothing: the catalogue has no such spec"),
    ],
)
def test_a_waiver_tells_what_it_did(waiver: Json, broken: bool, state: str) -> None:  # noqa: FBT001 - a table
    verdict = judged(train(F if broken else Status.PASSED), waivers=(waiver,))

    assert [entry["state"] for entry in verdict["waivers"]] == [state]


def test_of_two_waivers_the_one_that_excused_is_used() -> None:
    verdict = judged(train(F), waivers=(WAIVER | {"lowerer": "iree"}, WAIVER))

    assert [entry["state"] for entry in verdict["waivers"]] == ["not needed", "used"]


def test_each_card_keeps_its_name() -> None:
    cells = judged(gpus=(A, C))["cells"]

    assert {gpu["uuid"]: gpu["name"] for cell in cells for gpu in cell["gpus"]} == {
        A.uuid: "H200",
        C.uuid: "L4",
    }


@pytest.mark.parametrize(
    ("platforms", "platform"),
    [(("cuda", "cuda"), "cuda"), (("cuda", None), "cuda"), (("cpu", "cuda"), "cuda")],
)
def test_the_tests_of_a_cell_tell_its_platform(platforms: tuple[str | None, ...], platform: str) -> None:
    catalog = catalog_of(s__host={})
    told = [result("s.host", nodeid=f"t.py::t{n}", platform=where) for n, where in enumerate(platforms)]

    (cell,) = judge(catalog, ledger(catalog, run_record(catalog, A), *told))["cells"]

    assert cell["platform"] == platform


def test_a_verdict_is_the_same_from_the_file() -> None:
    records = ledger(CATALOG, run_record(CATALOG, A, B, waivers=(WAIVER,)), train(F))

    assert judge(CATALOG, read_ledger(map(write_line, records))) == judge(CATALOG, records)


def test_what_is_out_of_scope_stands_there_with_its_reason() -> None:
    assert judged()["scope"]["out"] == [{"spec": "s.lake", "reason": "lean was not looked for"}]


def line(specs: dict[str, Json], *changed: Any, **facts: Any) -> str:
    catalog = catalog_of(**specs)
    run = run_record(catalog, **facts)
    return summary_line(judge(catalog, ledger(catalog, run, *changed)))


ONE: dict[str, Json] = {"s__one": {"on": "any"}}
TRAP: dict[str, Json] = {"s__trap": {"kind": "gotcha", "canary": "upstream"}}
SILENT = result("s.trap", Status.SILENT, role="canary")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (line(ONE), "accept · reference · 1 spec holds"),
        (line(ONE | {"s__two": {}} | TRAP, SILENT), "accept · reference · 2 specs hold, 1 expired"),
        (line(ONE, result(status=F)), "reject · reference · 0 specs hold, 1 broken"),
        (
            line(ONE | {"s__claim": {"kind": "claim"}}, result("s.claim", F)),
            "accept · reference · 1 spec holds, 1 beside the gate does not",
        ),
        (line(ONE, simulated=True), "incomplete · reference · 1 spec holds · simulated box"),
        (
            line(ONE | {"s__a": {"when": ["gpu"]}, "s__b": {"when": ["lean"]}, "s__c": {"needs": ["s.a"]}}),
            "accept · reference · 1 spec holds · 3 out of scope (no card was asked for, lean was not looked for)",
        ),
        (
            line(ONE, scope_out=tuple((name, f"no {name}") for name in "abc")),
            "accept · reference · 1 spec holds · 3 out of scope (no a, no b, no c)",
        ),
        (
            line(ONE, scope_out=tuple((name, f"no {name}") for name in "abcd")),
            "accept · reference · 1 spec holds · 4 out of scope (no a, no b, no c and 1 more)",
        ),
    ],
)
def test_the_first_line(said: str, expected: str) -> None:
    assert said == expected


def test_a_spec_counts_once_by_its_worst_cell() -> None:
    assert summary_line(judged(train(F), gpus=(A, B))).startswith(
        "hardware suspect · reference · 4 specs hold, 1 broken"
    )


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("x" * 40, "x" * 40),
        ("x" * 80, "x" * 39 + "…"),
        ("no plugin for CUDA; tried, in order:\n  /a", "no plugin for CUDA"),
        ("no compiler\nanywhere", "no compiler"),
        ("no lakefile (needs s.one)", "no lakefile"),
    ],
)
def test_a_long_reason_is_cut(reason: str, shown: str) -> None:
    assert summary_line(judged(scope_out=(("s.lake", reason),))).endswith(f"1 out of scope ({shown})")


def test_a_run_that_was_never_judged_has_a_line() -> None:
    assert summary_line(running("r", "now")) == "incomplete · no project · 0 specs hold"
