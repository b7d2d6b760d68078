"""Which questions are sent, and when: without any worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from pytest_cudaboot.model import CellKey, Place
from pytest_cudaboot.run.asking import Asking
from pytest_cudaboot.run.seams import Question

CELL = CellKey(spec="s.gang", lowerer=None, gpu=None)


def question(number: int, *lanes: str) -> Question:
    return Question(
        number=number, index=number, nodeid="t", cell=CELL, place=Place.SAME, lanes=lanes, seconds=1.0
    )


class Stub:
    """A panel that has one question, and whoever sends it."""

    def __init__(self, one: Question, *, sends: bool = True) -> None:
        self.questions, self.sends = [one], sends
        self.sent: list[int] = []
        self.refused: list[int] = []
        self.cleared: list[str] = []
        self.asking = Asking(self, lambda: ("A", "B"), self.send)
        self.asking.ask({"A": "gw0", "B": "gw1"}, self.cleared.append)

    open = True

    def ask(self, ready: Mapping[str, str], lanes: Collection[str]) -> list[Question]:
        found, self.questions = self.questions, []
        return found

    def answered(self, number: int, lanes: Collection[str]) -> Mapping[str, str]:
        return {}

    def lost(self, number: int, lanes: Collection[str]) -> None:
        raise AssertionError("nothing was sent that could be lost")

    def unsent(self, number: int, lanes: Collection[str]) -> None:
        self.refused.append(number)

    def send(self, one: Question) -> bool:
        self.sent.append(one.number)
        return self.sends


def test_a_question_for_one_card_is_sent_at_once() -> None:
    assert Stub(question(0, "A")).sent == [0]


def test_a_gangs_question_waits_until_its_partner_has_left() -> None:
    stub = Stub(question(0, "A", "B"))

    assert (stub.cleared, stub.sent) == (["B"], [])
    stub.asking.left("B")
    assert (stub.sent, stub.refused) == ([0], [])


def test_a_question_whose_worker_dies_meanwhile_is_not_its_replacements() -> None:
    """Who watches over it knows it by the worker that was asked."""
    stub = Stub(question(0, "A", "B"))

    stub.asking.gone("A")
    stub.asking.left("B")

    assert (stub.sent, stub.refused) == ([], [0])


@pytest.mark.parametrize("lanes", [("A",), ("A", "B")])
def test_a_question_that_can_not_be_sent_is_told(lanes: tuple[str, ...]) -> None:
    stub = Stub(question(0, *lanes), sends=False)

    stub.asking.left("B")

    assert stub.refused == [0]
