"""The truth table of the verdict, and what holds for every run, its reasons and its ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cudaboot.model import (
    BlockedRecord,
    CellKey,
    ItemRecord,
    Json,
    PlanRecord,
    ResultRecord,
    Ruling,
    StartRecord,
    Status,
)
from pytest_cudaboot.rules.verdict import judge
from tests.rules.builders import A, B, catalog_of, ledger, result, run_record
from tests.rules.runs import CATALOG, WAIVER, F, S, X, build, edited, everything, judged, problem, train
from tests.rules.verdict_rows import ROWS


@pytest.mark.parametrize(("verdict", "ruling", "exit_", "words"), ROWS.values(), ids=ROWS)
def test_what_the_gate_says(verdict: Json, ruling: str, exit_: int, words: str) -> None:
    assert (verdict["verdict"], verdict["exit"]) == (ruling, exit_)
    assert words in (verdict["reasons"] or [""])[0]


def test_a_verdict_that_is_no_accept_has_a_reason() -> None:
    assert all(verdict["reasons"] or ruling == "accept" for verdict, ruling, _, _ in ROWS.values())


def test_no_line_can_be_missing_from_an_accepted_ledger() -> None:
    """Whatever single line is lost, nothing is accepted but what says the same without it."""
    records = ledger(CATALOG, run_record(CATALOG, A))
    for lost in records:
        verdict = judge(CATALOG, [record for record in records if record is not lost])
        harmless = isinstance(lost, ItemRecord | StartRecord)
        assert (verdict["verdict"] == "accept") == harmless, lost


def test_no_result_can_turn_bad_in_an_accepted_ledger() -> None:
    records = ledger(CATALOG, run_record(CATALOG, A))
    decisive = {"s.build", "s.train", "s.trap"}
    for place, record in enumerate(records):
        if isinstance(record, ResultRecord) and record.spec in decisive:
            for status in (F, X, S, Status.NO_EVIDENCE, Status.UNSUPPORTED):
                changed = [*records[:place], replace(record, status=status), *records[place + 1 :]]
                assert judge(CATALOG, changed)["verdict"] != "accept", (record, status)


def test_reasons_are_ordered_by_weight() -> None:
    verdict = edited(
        everything, build(F), train(S), problem(Ruling.HARDWARE), problem(Ruling.ENVIRONMENT, "box")
    )

    words = ["box", "s.build·xla is broken", "words", "1 cell not run"]
    assert [reason[: len(word)] for reason, word in zip(verdict["reasons"], words, strict=False)] == words


def test_what_has_one_reason_is_told_once() -> None:
    verdict = judged(train(S, reason="no disk"), train(S, "iree", reason="no disk"))

    assert verdict["reasons"][0] == "2 cells not run (no disk): s.train·xla·GPU-aa11, s.train·iree·GPU-aa11"


def test_blocked_cells_stand_behind_their_one_red_cell() -> None:
    """By all that is known in the end, not by what was known when each was stopped."""
    names = [f"t.py::s.train[check-xla-{gpu.uuid}]" for gpu in (A, B)]
    records = [
        record
        for record in ledger(CATALOG, run_record(CATALOG, A, B), build(F))
        if isinstance(record, ItemRecord) or getattr(record, "nodeid", "") not in names
    ]
    stopped = [BlockedRecord(nodeid=name, by="s.build", reason=f"{name} was late") for name in names]

    verdict = judge(CATALOG, [*records, *stopped])

    assert [cell["spec"] for cell in verdict["cells"] if cell["outcome"] == "blocked"] == ["s.train"] * 2
    assert verdict["reasons"][0].startswith("s.build·xla is broken")
    words = "2 cells blocked (its prerequisite s.build·xla is broken): s.train·xla"
    assert verdict["reasons"][1].startswith(words)
    assert verdict["ledger"]["lost"] == []


def test_a_lost_test_is_named_and_counted() -> None:
    name = f"t.py::s.train[check-xla-{A.uuid}]"
    verdict = edited(lambda record: not (isinstance(record, ResultRecord) and record.nodeid == name))

    assert verdict["verdict"] == "incomplete"
    assert verdict["reasons"][0] == f"1 test never ended: {name}"
    assert verdict["ledger"] == {"planned": 6, "reported": 5, "lost": [name]}
    assert f"{name} started and never ended" in [cell["reason"] for cell in verdict["cells"]]


def test_each_track_has_its_own_verdict() -> None:
    verdict = judged(result("s.lines", F))

    assert verdict["tracks"] == {"toolchain": "accept", "document": "reject"}


def test_a_bad_box_spoils_every_track() -> None:
    verdict = edited(everything, problem(Ruling.ENVIRONMENT))

    assert set(verdict["tracks"].values()) == {"environment"}


def test_other_problems_spoil_no_track() -> None:
    verdict = edited(everything, problem(Ruling.HARDWARE))

    assert verdict["tracks"] == {"toolchain": "accept", "document": "accept"}


@pytest.mark.parametrize(
    ("lowerer", "told"),
    [("xla", False), ("iree", True), (None, False)],
    ids=["the one that broke", "the other one", "both"],
)
def test_a_waiver_is_not_needed_only_where_all_that_it_covers_holds(
    lowerer: str | None,
    told: bool,  # noqa: FBT001 - a table
) -> None:
    verdict = judged(train(F), waivers=({**WAIVER, "lowerer": lowerer},))

    assert any("is not needed" in reason for reason in verdict["reasons"]) is told


def test_a_waiver_of_a_spec_out_of_scope_is_nothing_to_tell() -> None:
    assert judged(waivers=({**WAIVER, "spec": "s.lake"},))["reasons"] == []


@pytest.mark.parametrize(("number", "names"), [(3, "n0, n1, n2"), (4, "n0, n1, n2 and 1 more")])
def test_three_names_are_told(number: int, names: str) -> None:
    catalog = catalog_of(**{f"n{place}": {"on": "any"} for place in range(number)})
    skipped = [result(f"n{place}", S, reason="r") for place in range(number)]

    verdict = judge(catalog, ledger(catalog, run_record(catalog), *skipped))

    assert verdict["reasons"][0] == f"{number} cells not run (r): {names}"


def test_a_planned_cell_that_the_catalogue_does_not_know_is_left_alone() -> None:
    verdict = edited(everything, PlanRecord(cells=(CellKey("s.old"),)))

    assert verdict["verdict"] == "accept"
    assert "s.old" not in [cell["spec"] for cell in verdict["cells"]]


def test_a_pair_proves_both_lowerers() -> None:
    catalog = catalog_of(s__pair={"on": "any", "lowerers": ["xla", "iree"], "pair": True})

    assert judge(catalog, ledger(catalog, run_record(catalog, explicit_lowerers=True)))["verdict"] == "accept"


HOST = catalog_of(s__host={}, s__xla={"on": "any", "lowerers": ["xla"]}, s__iree={"lowerers": ["iree"]})


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"lowerers": ("xla",)}, None),
        ({}, None),
        ({"lowerers": ("xla",), "scope_in": ("s.host",)}, "nothing is proved on the CPU"),
        ({"scope_in": ("s.host", "s.xla")}, None),
        (
            {"scope_in": ("s.host", "s.xla"), "explicit_lowerers": True},
            "nothing is proved of lowerer iree",
        ),
        ({"tracks": ("proofs",)}, "nothing is proved on the CPU"),
    ],
    ids=[
        "one lowerer",
        "both lowerers",
        "only host cells",
        "a lowerer without a cell, by default",
        "a lowerer without a cell, asked for",
        "no cell on the track that decides",
    ],
)
def test_an_accept_needs_something_that_was_proved(facts: Json, words: str | None) -> None:
    inside = facts.get("scope_in", tuple(HOST.specs))
    out = tuple((spec, "out") for spec in HOST.specs if spec not in inside)
    run = replace(run_record(HOST, **facts), scope_out=out, scope_in=inside)

    verdict = judge(HOST, ledger(HOST, run))

    assert verdict["verdict"] == ("accept" if words is None else "incomplete")
    assert words is None or any(words in reason for reason in verdict["reasons"])


def test_each_card_needs_something_that_holds_on_it() -> None:
    catalog = catalog_of(s__any={"on": "any"})

    verdict = judge(catalog, ledger(catalog, run_record(catalog, A, B)))

    assert verdict["reasons"] == ["nothing is proved on GPU 1 (GPU-ab22): no deciding gate cell holds there"]


def test_a_ledger_without_a_first_line_is_judged_all_the_same() -> None:
    verdict = judge(CATALOG, [], finished="now")

    assert (verdict["verdict"], verdict["exit"], verdict["finished"]) == ("incomplete", 12, "now")
    assert verdict["reasons"] == ["the ledger has no first line: nothing is known of the run"]


def test_two_runs_in_one_ledger_are_no_accept() -> None:
    records = ledger(CATALOG, run_record(CATALOG, A))

    assert "the ledger holds 2 runs" in judge(CATALOG, [*records, records[0]])["reasons"]


def test_the_order_of_the_lines_does_not_matter() -> None:
    records = ledger(CATALOG, run_record(CATALOG, A), train(F), build(S))

    assert judge(CATALOG, records[::-1])["cells"] == judge(CATALOG, records)["cells"]
