"""A canary that upstream has mended: a document that is stale, and no failure of the run."""

from __future__ import annotations

from tests.run.gate import HELD, WORKS, Gate

GOTCHA = """
[a.gotcha]
kind = "gotcha"
canary = "{canary}"
title = "It fails, but for the workaround"
heading = "First"
"""
TESTS = (
    HELD
    + """
@pytest.mark.spec("a.gotcha")
def test_with_the_workaround(measure): measure(figure=1)

@pytest.mark.spec("a.gotcha", role="canary")
def test_without_it(measure, canary):
    measure(figure=2)
    with canary("the documented words"):
        pass
"""
)
CONTROL = """
@pytest.mark.spec("a.gotcha", role="control")
def test_it_was_really_asked_for(measure): measure(figure=3)
"""


def test_a_mended_upstream_is_not_shown_as_a_failure(gate: Gate) -> None:
    suite = gate.suite(TESTS + CONTROL, WORKS + GOTCHA.format(canary="upstream"))

    shown = suite.away("--cudaboot-lowerers", "xla").stdout.str()

    assert gate.outcomes["a.gotcha"] == "expired"
    assert "1 expired" in shown
    assert "FAILURES" not in shown


def test_a_guard_that_is_silent_is(gate: Gate) -> None:
    suite = gate.suite(TESTS, WORKS + GOTCHA.format(canary="guard"))

    shown = suite.away("--cudaboot-lowerers", "xla").stdout.str()

    assert gate.outcomes["a.gotcha"] == "broken"
    assert "FAILURES" in shown
