"""The truth table of one cell: each row is one thing that tests can say, and what becomes of the cell."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from pytest_cudaboot.model import BlockedRecord, Outcome, ResultRecord, Status
from pytest_cudaboot.rules.cells import WORST_FIRST, Settled, settle
from tests.rules.builders import result, spec_of

STEP = spec_of()
MAY = spec_of(may=("unsupported",))
GUARD = spec_of(kind="gotcha", canary="guard")
UPSTREAM = spec_of(kind="gotcha", canary="upstream")
ANY = spec_of(on="any")

P, F, X, S = Status.PASSED, Status.FAILED, Status.CRASHED, Status.SKIPPED
N, U, Q = Status.NO_EVIDENCE, Status.UNSUPPORTED, Status.SILENT


def check(status: Status = P, **facts: Any) -> ResultRecord:
    return result(status=status, **facts)


def canary(status: Status = P, **facts: Any) -> ResultRecord:
    return result(status=status, role="canary", **facts)


def control(status: Status = P, **facts: Any) -> ResultRecord:
    return result(status=status, role="control", **facts)


def blocked(by: str | None, reason: str = "s.zero is broken") -> BlockedRecord:
    return BlockedRecord(nodeid="t", by=by, reason=reason)


ROWS = {
    "a step that passes holds": (STEP, [check()], "holds", None),
    "a step that fails is broken": (
        STEP,
        [check(F, cause="numeric", reason="far off")],
        "broken numeric",
        "far off",
    ),
    "a failure without a cause is an assertion": (
        STEP,
        [check(F)],
        "broken assertion",
        "failed without a word",
    ),
    "a crash is broken": (STEP, [check(X)], "broken crash", "the worker died"),
    "a skip is not run, for its reason": (STEP, [check(S, reason="no disk")], "not-run", "no disk"),
    "a skip without a reason says so": (STEP, [check(S)], "not-run", "skipped without a reason"),
    "green without evidence is not run": (STEP, [check(N)], "not-run", "no evidence"),
    "nothing is not run": (STEP, [], "not-run", "no test of it reported"),
    "unsupported counts where the catalogue lists it": (MAY, [check(U, reason="99")], "unsupported", "99"),
    "unsupported elsewhere is broken": (
        STEP,
        [check(U)],
        "broken run",
        "which the catalogue does not allow here",
    ),
    "a silent check is broken": (STEP, [check(Q)], "broken assertion", "only a canary can be"),
    "a silent workaround is broken": (
        GUARD,
        [check(Q), canary()],
        "broken assertion",
        "only a canary can be",
    ),
    "several tests: the worst counts": (
        STEP,
        [check(), check(F, nodeid="b"), check(S)],
        "broken assertion",
        None,
    ),
    "a skip beside a pass is not run": (STEP, [check(), check(S, nodeid="b")], "not-run", None),
    "a guard that fires holds": (GUARD, [check(), canary()], "holds", None),
    "a gotcha without its canary is not run": (
        GUARD,
        [check()],
        "not-run",
        "no test with role 'canary' reported",
    ),
    "a gotcha without its check is not run": (
        GUARD,
        [canary()],
        "not-run",
        "no test with role 'check' reported",
    ),
    "a silent guard is broken": (GUARD, [check(), canary(Q)], "broken assertion", "the guard is silent"),
    "a canary that fails otherwise is broken": (
        *(GUARD, [check(), canary(F, cause="run", reason="segfault")]),
        *("broken run", "not as documented: segfault"),
    ),
    "a canary that was skipped is not run": (GUARD, [check(), canary(S)], "not-run", None),
    "a canary without evidence is not run": (GUARD, [check(), canary(N)], "not-run", "no evidence"),
    "a canary whose worker died is broken": (GUARD, [check(), canary(X)], "broken crash", None),
    "an upstream defect that is still there holds": (UPSTREAM, [check(), canary(), control()], "holds", None),
    "an upstream gotcha needs its control": (
        *(UPSTREAM, [check(), canary()]),
        *("not-run", "no test with role 'control' reported"),
    ),
    "a silent canary with a control that passed is expired": (
        *(UPSTREAM, [check(), canary(Q), control()]),
        *("expired", "the document is stale here"),
    ),
    "a silent canary without a control is broken": (
        *(UPSTREAM, [check(), canary(Q)]),
        *("broken assertion", "no control shows that the thing was really asked for"),
    ),
    "a silent canary with a skipped control is broken": (
        *(UPSTREAM, [check(), canary(Q), control(S)]),
        *("broken assertion", "no control shows"),
    ),
    "a silent canary with an idle control is broken": (
        *(UPSTREAM, [check(), canary(Q), control(N)]),
        *("broken assertion", "no control shows"),
    ),
    "one control of two that passed shows nothing": (
        *(UPSTREAM, [check(), canary(Q), control(), control(S, nodeid="b")]),
        *("broken assertion", "no control shows"),
    ),
    "a failed control is broken": (
        *(UPSTREAM, [check(), canary(), control(F, reason="no .target")]),
        *("broken assertion", "the control failed: no .target"),
    ),
    "a broken workaround is broken though the canary expired": (
        *(UPSTREAM, [check(F, reason="bad"), canary(Q), control()]),
        *("broken assertion", "bad"),
    ),
    "an expired canary beside a skipped workaround is not run": (
        *(UPSTREAM, [check(S), canary(Q), control()]),
        *("not-run", None),
    ),
}


@pytest.mark.parametrize(("spec", "results", "fate", "words"), ROWS.values(), ids=ROWS)
def test_what_becomes_of_a_cell(spec: object, results: object, fate: str, words: str | None) -> None:
    settled = settle(spec, results)  # type: ignore[arg-type]

    assert " ".join(filter(None, [settled.outcome, settled.cause])) == fate
    assert (words or "") in (settled.reason or "")


def test_only_what_is_broken_has_a_cause_and_a_blame() -> None:
    for spec, results, _, _ in ROWS.values():
        settled = settle(spec, results)
        assert (
            (settled.outcome is Outcome.BROKEN) == (settled.cause is not None) == (settled.blame is not None)
        )


def test_no_more_news_makes_a_cell_better() -> None:
    """Adding a test can only keep a cell or make it worse, once each role has spoken."""
    for spec, first, second in product((STEP, MAY), (P, F, X, S, N, U), (P, F, X, S, N, U)):
        alone, both = settle(spec, [check(first)]), settle(spec, [check(first), check(second, nodeid="b")])
        assert WORST_FIRST.index(both.outcome) <= WORST_FIRST.index(alone.outcome)


def test_blocked_by_a_prerequisite() -> None:
    assert settle(STEP, [], [blocked("s.zero")]) == Settled(
        outcome=Outcome.BLOCKED, reason="s.zero is broken"
    )


def test_what_can_not_be_had_is_not_run() -> None:
    settled = settle(STEP, [], [blocked(None, "2 cards are needed")])

    assert settled == Settled(outcome=Outcome.NOT_RUN, reason="2 cards are needed")


def test_broken_is_worse_than_blocked() -> None:
    assert settle(STEP, [check(F)], [blocked("s.zero")]).outcome is Outcome.BROKEN


def test_a_lost_test_is_named() -> None:
    assert settle(STEP, [check()], lost=["t.py::b never started"]) == Settled(
        outcome=Outcome.NOT_RUN, reason="t.py::b never started"
    )


def test_the_cpu_is_no_stand_in_for_a_card() -> None:
    settled = settle(ANY, [check(platform="cpu")], platform="cuda")

    assert (settled.outcome, settled.reason) == (
        Outcome.BROKEN,
        "it ran on the CPU, though a card was asked for",
    )


@pytest.mark.parametrize(
    ("spec", "platform", "where"),
    [(ANY, "cpu", "cpu"), (ANY, "cuda", "cuda"), (STEP, "cuda", "cpu"), (ANY, "cuda", None)],
    ids=["a run on the CPU", "on the card", "a host spec", "a test that executed nothing"],
)
def test_elsewhere_a_pass_is_a_pass(spec: object, platform: str, where: str | None) -> None:
    assert settle(spec, [check(platform=where)], platform=platform).outcome is Outcome.HOLDS  # type: ignore[arg-type]


def test_a_canary_may_use_the_cpu() -> None:
    guard = spec_of(kind="gotcha", canary="guard", on="any")

    assert settle(guard, [check(), canary(platform="cpu")], platform="cuda").outcome is Outcome.HOLDS


@pytest.mark.parametrize(
    ("on", "platform", "blame"),
    [
        ("host", "cuda", "toolchain"),
        ("any", "cpu", "toolchain"),
        ("any", "cuda", "undecidable"),
        ("each", "cuda", "undecidable"),
    ],
)
def test_one_card_has_no_second_opinion(on: str, platform: str, blame: str) -> None:
    assert settle(spec_of(on=on), [check(F)], platform=platform).blame == blame
