"""Without workers a test that is blocked is passed over, and the next one, in another file, starts clean."""

from __future__ import annotations

from tests.run.gate import HELD, WORKS, Gate, catalog_of

BROKEN = """
import pytest
@pytest.mark.spec("b.broken")
def test_broken(): assert False
@pytest.mark.spec("b.next")
def test_next(measure): measure(figure=1)
"""
LATER = """
import pytest
@pytest.mark.spec("c.later")
def test_later(measure): measure(figure=1)
"""


def test_the_test_after_a_blocked_one_is_set_up(gate: Gate) -> None:
    gate.suite(
        HELD, WORKS + catalog_of("b.broken", "b.next", "c.later", b_next=["b.broken"]).replace(WORKS, "")
    )
    (gate.path / "test_twice.py").write_text(BROKEN)
    (gate.path / "test_zuletzt.py").write_text(LATER)

    gate.here()

    assert gate.outcomes == {
        "a.works": "holds",
        "b.broken": "broken",
        "b.next": "blocked",
        "c.later": "holds",
    }
