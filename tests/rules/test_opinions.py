"""What the tests that were run again say of a cell, and what the ledger's attempts make of a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.model import AttemptRecord, BlockedRecord, Json, Place, ResultRecord, Status
from pytest_cudaboot.rules.opinions import Answer, against, allows, heard
from pytest_cudaboot.rules.verdict import judge, summary_line
from tests.rules.builders import A, B, C, catalog_of, ledger, result, run_record, spec_of

F, H, S, N = Answer.FAILS, Answer.HOLDS, Answer.SPLIT, Answer.NONE


def again(one: ResultRecord, status: Status, place: Place = Place.SAME, **facts: Any) -> AttemptRecord:
    card = A.uuid if place is Place.SAME else B.uuid
    return AttemptRecord(**{"nodeid": one.nodeid, "place": place, "card": card, "status": status, **facts})


X, P, Q, K = Status.FAILED, Status.PASSED, Status.SILENT, Status.SKIPPED
ANY = spec_of(on="any")
ONE, TWO = result(status=X, nodeid="t::one"), result(status=X, nodeid="t::two")


@pytest.mark.parametrize(
    ("attempts", "answer"),
    [
        ([], N),
        ([again(ONE, X), again(TWO, X)], F),
        ([again(ONE, P), again(TWO, P)], H),
        ([again(ONE, P), again(TWO, X)], F),
        ([again(ONE, P)], N),
        ([again(ONE, X)], F),
        ([again(ONE, P), again(TWO, K)], N),
        ([again(ONE, P, platform="cpu"), again(TWO, P)], F),
        ([again(ONE, X, cause="collateral"), again(TWO, P)], N),
        ([again(ONE, X, Place.SIBLING)], N),
    ],
    ids=[
        "nobody",
        "fail",
        "hold",
        "one fails",
        "one open",
        "rest open",
        "skipped",
        "CPU",
        "a victim",
        "elsewhere",
    ],
)
def test_a_cell_is_judged_as_if_its_failed_tests_had_said_that(
    attempts: list[AttemptRecord], answer: Answer
) -> None:
    assert heard(ANY, [ONE, TWO], attempts, Place.SAME, platform="cuda") is answer


def test_the_cards_of_a_gang_are_one_opinion() -> None:
    pair: Any = {"partners": (C.uuid,)}
    told = [again(ONE, X, **pair), again(TWO, P, **pair), again(ONE, P, Place.SIBLING, partners=("GPU-d",))]

    assert heard(ANY, [ONE, TWO], told, Place.SAME, platform="cuda") is F
    assert heard(ANY, [ONE], told, Place.SIBLING, platform="cuda") is H


def evidence_against(who: str) -> Json:
    return {"evidence": {"hardware": {"GPU-x": {"against": who}}}}


def test_a_sibling_that_is_suspect_itself_gives_no_opinion() -> None:
    told = again(ONE, X, Place.SIBLING, **evidence_against("card"))

    assert heard(ANY, [ONE], [told], Place.SIBLING, platform="cuda") is N
    assert against([ONE], [told]) is None


def test_a_second_run_is_a_witness_as_well() -> None:
    first = result(status=X, nodeid="t::one", **evidence_against("toolchain"))
    fine = again(ONE, P, **evidence_against("card"))

    assert against([first], []) == "toolchain"
    assert against([first], [again(ONE, X, **evidence_against("card"))]) == "card"
    assert against([ONE], [again(ONE, X, Place.SIBLING, **evidence_against("toolchain"))]) == "toolchain"
    assert against([ONE], [fine]) is None


def test_a_guard_that_is_silent_once_is_heard_again() -> None:
    guard = spec_of(kind="gotcha", canary="guard", on="any")
    silent = result(status=Q, role="canary")

    assert heard(guard, [result(), silent], [again(silent, P)], Place.SAME, platform="cuda") is H
    assert heard(guard, [result(), silent], [again(silent, Q)], Place.SAME, platform="cuda") is F


CATALOG = catalog_of(
    s__any={"on": "any"},
    s__each={"on": "each"},
    s__loose={"on": "any", "flaky": 0.05, "flaky_reason": "two kernels race for the last bit"},
)


def judged(first: ResultRecord, *attempts: AttemptRecord, gpus: Any = (A, B)) -> Json:
    records = ledger(CATALOG, run_record(CATALOG, *gpus), first)
    return judge(CATALOG, [*records[:-1], *attempts, records[-1]])


def broken(spec: str, **facts: Any) -> ResultRecord:
    bound = {"gpu": A.uuid} if spec == "s.each" else {}
    told = {"cause": "numeric", "reason": "far off", "platform": "cuda", "gpus": (A.uuid,), "seconds": 2.0}
    return result(spec, X, **{**told, **bound, **facts})


def cell(verdict: Json, spec: str) -> Json:
    return next(cell for cell in verdict["cells"] if cell["spec"] == spec and cell["outcome"] == "broken")


def test_what_fails_on_both_cards_is_the_toolchain() -> None:
    first = broken("s.any")
    verdict = judged(first, again(first, X, cause="numeric"), again(first, X, Place.SIBLING, cause="crash"))

    found = cell(verdict, "s.any")
    assert (verdict["verdict"], found["blame"], found["attempts"]) == ("reject", "toolchain", 3)
    assert found["reason"] == "far off; again there fails (numeric), on GPU-ab22 fails (crash)"
    assert [(one["place"], one["cards"], one["status"]) for one in found["evidence"]["attempts"]] == [
        ("first", [A.uuid], "failed"),
        ("same", [A.uuid], "failed"),
        ("sibling", [B.uuid], "failed"),
    ]


def test_what_fails_on_one_card_only_is_the_card() -> None:
    first = broken("s.any")
    verdict = judged(first, again(first, X), again(first, P, Place.SIBLING))

    assert (verdict["verdict"], verdict["exit"], cell(verdict, "s.any")["blame"]) == (
        "hardware suspect",
        11,
        "card",
    )


def test_what_fails_once_is_flaky_and_rejects() -> None:
    first = broken("s.each")
    verdict = judged(first, again(first, P))

    assert (verdict["verdict"], cell(verdict, "s.each")["blame"]) == ("reject", "flaky")
    assert "blame: flaky): far off; again there holds" in verdict["reasons"][0]


def test_a_gang_that_fails_on_two_sets_of_cards_is_the_toolchain() -> None:
    first = broken("s.any", gpus=(A.uuid, B.uuid))
    again_there = again(first, X, partners=(B.uuid,), gpus=(A.uuid, B.uuid))
    others: Any = {"card": "GPU-e", "partners": ("GPU-f",)}
    alone = cell(judged(first, again_there), "s.any")
    verdict = judged(first, again_there, again(first, X, Place.SIBLING, **others))

    assert alone["blame"] == "undecidable"
    assert cell(verdict, "s.any")["blame"] == "toolchain"
    assert cell(verdict, "s.any")["reason"].endswith("on GPU-e and GPU-f fails (failed)")
    assert cell(verdict, "s.any")["evidence"]["attempts"][1]["cards"] == [A.uuid, B.uuid]


def test_a_gang_need_not_use_all_of_its_cards_again() -> None:
    first = broken("s.any", gpus=(A.uuid,))
    one, other = (again(first, P, partners=(B.uuid,), gpus=gpus) for gpus in ((A.uuid,), (A.uuid, C.uuid)))

    assert judged(first, one)["verdict"] == "reject"
    assert judged(first, other)["verdict"] == "environment"


def test_with_one_card_the_drivers_word_decides_and_is_told() -> None:
    facts = {"hardware": {A.uuid: {"xids": [31], "against": "toolchain"}}}
    first = broken("s.any", evidence=facts)
    verdict = judged(first, again(first, X, evidence=facts), gpus=(A,))

    found = cell(verdict, "s.any")
    assert (verdict["verdict"], found["blame"]) == ("reject", "toolchain")
    assert found["reason"].endswith("; what the driver tells of it speaks against the toolchain")
    assert found["evidence"]["attempts"][1]["hardware"] == facts["hardware"]


def test_a_rate_that_the_catalogue_states_is_told_and_accepted() -> None:
    first = broken("s.loose")
    verdict = judged(first, again(first, P))

    assert (verdict["verdict"], verdict["exit"], verdict["tracks"]["toolchain"]) == ("accept", 0, "accept")
    assert cell(verdict, "s.loose")["blame"] == "flaky"
    assert "it may be flaky in 0.05 of its runs: two kernels race" in verdict["reasons"][0]
    assert summary_line(verdict).startswith("accept · reference · 2 specs hold, 1 flaky as expected")


def test_a_rate_excuses_nothing_that_fails_again() -> None:
    first = broken("s.loose")

    assert judged(first, again(first, X))["verdict"] == "reject"
    assert judged(first, again(first, K, reason="no time"))["verdict"] == "reject"
    assert judged(first)["verdict"] == "reject"


def test_a_rate_excuses_no_test_that_was_stopped() -> None:
    first, other = broken("s.loose"), result("s.loose", nodeid="t::other")
    stopped = BlockedRecord(nodeid=other.nodeid, by=None, reason="no worker for its card")
    *records, end = ledger(CATALOG, run_record(CATALOG, A, B), first, other)
    told = [one for one in records if not (isinstance(one, ResultRecord) and one.nodeid == other.nodeid)]

    verdict = judge(CATALOG, [*told, stopped, again(first, P), end])

    assert (verdict["verdict"], cell(verdict, "s.loose")["allowed"]) == ("reject", False)


@pytest.mark.parametrize(
    ("rate", "failed", "attempts", "well"),
    [
        (0.05, 1, 2, True),
        (0.05, 2, 4, True),
        (0.05, 2, 3, False),
        (0.001, 1, 2, False),
        (0.5, 2, 2, False),
        (None, 1, 2, False),
    ],
)
def test_what_a_rate_lets_expect(rate: float | None, failed: int, attempts: int, *, well: bool) -> None:
    assert allows(spec_of(on="any", flaky=rate), failed, attempts) is well


def test_what_was_not_asked_is_told() -> None:
    first = broken("s.any")
    verdict = judged(first, again(first, K, reason="the time for second opinions is spent"), gpus=(A, C))

    found = cell(verdict, "s.any")
    assert (found["blame"], found["attempts"]) == ("undecidable", 1)
    assert found["reason"].endswith("; again there could not be (the time for second opinions is spent)")


def test_an_opinion_from_the_wrong_card_spoils_everything() -> None:
    first = broken("s.any")
    verdict = judged(first, again(first, P, platform="cuda", gpus=(B.uuid,)))

    assert (verdict["verdict"], verdict["exit"]) == ("environment", 13)
    assert f"was bound to {A.uuid} and ran again on {B.uuid}" in verdict["reasons"][0]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"on": "any", "flaky": 0.05}, "flaky: a rate at which it may fail needs its `flaky_reason`"),
        ({"on": "any", "flaky_reason": "r"}, "flaky: a rate at which it may fail needs its `flaky_reason`"),
        ({"on": "any", "flaky": 1, "flaky_reason": "r"}, "flaky: 1 is not a share between 0 and 1"),
        ({"flaky": 0.05, "flaky_reason": "r"}, "flaky: what runs on the host is not run again"),
    ],
)
def test_a_rate_has_its_reason(keys: Json, words: str) -> None:
    with pytest.raises(CatalogError, match=words):
        catalog_of(s__one=keys)
