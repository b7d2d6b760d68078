"""Which tests are run again, where, and what is said of those that are not; without any process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.model import AttemptRecord, CellKey, Gpu, Place, ResultRecord, Status
from pytest_cudaboot.run import opinions
from pytest_cudaboot.run.again import Again, write_again
from pytest_cudaboot.run.opinions import Asked, Opinions, Watchers
from pytest_cudaboot.run.seams import Question
from tests.rules.builders import A, B, C, catalog_of, item_of, result

F, P = Status.FAILED, Status.PASSED
MORE = [replace(A, index=number, uuid=f"GPU-more{number}") for number in (4, 5)]  # of the same model
CATALOG = catalog_of(
    s__any={"on": "any"},
    s__two={"on": "any"},
    s__each={"on": "each"},
    s__gang={"on": "any", "when": ["gpus:2"]},
    s__host={},
    s__claim={"kind": "claim", "on": "any"},
)


class Panel:
    """Opinions over some results that all ran on card A, with what is told of them."""

    def __init__(
        self, folder: Path, results: Sequence[ResultRecord], gpus: Sequence[Gpu], **facts: Any
    ) -> None:
        self.folder = folder
        self.results = results
        self.lanes = [gpu.uuid for gpu in gpus]
        self.now = 0.0
        self.attempts: list[AttemptRecord] = []
        self.problems: list[str] = []
        self.watched: list[tuple[str, tuple[str, ...]]] = []
        watchers = Watchers(
            add=self.attempts.append,
            begun=lambda worker, question: self.watched.append((worker, question.lanes)),
            ended=self.ended,
            hung=lambda worker: "it hung" if worker == "hung" else None,
            problem=self.problems.append,
        )
        asked = Asked(
            catalog=CATALOG,
            items=[item_of(one) for one in results],
            gpus=gpus,
            results={one.nodeid: one for one in results},
            **facts,
        )
        self.panel = Opinions(asked, watchers, folder=folder, clock=lambda: self.now)
        for index in range(len(results)):
            self.panel.ran(index, [A.uuid, B.uuid] if results[index].spec == "s.gang" else [A.uuid])

    def ended(self, worker: str, attempt: AttemptRecord) -> AttemptRecord:
        self.watched.remove((worker, attempt.cards))
        return replace(attempt, evidence={**attempt.evidence, "seen": worker})

    def ask(self, *ready: Gpu) -> list[Question]:
        return self.panel.ask({gpu.uuid: f"gw-{gpu.index}" for gpu in ready}, self.lanes)

    def answer(self, question: Question, status: Status, **facts: Any) -> dict[str, str]:
        told = replace(self.results[question.index], status=status, cause=None, **facts)
        write_again(self.folder, question.number, Again(result=told, problem=None))
        return self.panel.answered(question.number, self.lanes)


def failed(spec: str, **facts: Any) -> ResultRecord:
    return result(spec, F, **{"cause": "run", "platform": "cuda", "gpus": (A.uuid,), "seconds": 1.0, **facts})


def test_what_fails_again_goes_to_a_sibling(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.any")], [C, A, B])
    (same,) = panel.ask(A, B, C)
    panel.answer(same, F)
    (sibling,) = panel.ask(A, B, C)
    panel.answer(sibling, P)

    assert [(one.place, one.lane) for one in (same, sibling)] == [
        (Place.SAME, A.uuid),
        (Place.SIBLING, B.uuid),
    ]
    assert [(one.place, one.status, one.card) for one in panel.attempts] == [
        (Place.SAME, F, A.uuid),
        (Place.SIBLING, P, B.uuid),
    ]
    assert [one.evidence["seen"] for one in panel.attempts] == ["gw-0", "gw-1"]
    assert (panel.ask(A, B, C), panel.panel.open, panel.watched) == ([], False, [])


def test_a_card_that_is_set_aside_for_an_answer_is_no_reason_to_ask_twice(tmp_path: Path) -> None:
    """What waited for that card is closed while the answer is being heard, and siblings are asked when both are known."""

    class Quick(Panel):
        def ended(self, worker: str, attempt: AttemptRecord) -> AttemptRecord:
            self.lanes = [B.uuid]
            self.panel.ask({}, self.lanes)
            return super().ended(worker, attempt)

    panel = Quick(tmp_path, [failed("s.any", nodeid="t::one"), failed("s.any", nodeid="t::two")], [A, B])
    (same,) = panel.ask(A)
    panel.answer(same, F)
    siblings: list[str] = []
    while asked := panel.ask(B):
        siblings += [one.nodeid for one in asked]
        panel.answer(asked[0], F)

    assert siblings == ["t::one", "t::two"]


@pytest.mark.parametrize(
    ("first", "gpus", "status"),
    [
        (failed("s.any"), [A, B], P),
        (failed("s.any"), [A, C], F),
        (failed("s.each", gpu=A.uuid), [A, B], F),
    ],
    ids=["it holds", "another model", "each card has a cell"],
)
def test_no_sibling_is_asked(tmp_path: Path, first: ResultRecord, gpus: list[Gpu], status: Status) -> None:
    panel = Panel(tmp_path, [first], gpus)
    (same,) = panel.ask(*gpus)
    panel.answer(same, status)

    assert (panel.ask(*gpus), panel.panel.open, len(panel.attempts)) == ([], False, 1)


@pytest.mark.parametrize(
    "fine",
    [
        result("s.any", P, platform="cuda"),
        result("s.host", F),
        failed("s.claim"),
        result("s.any", Status.SKIPPED),
    ],
)
def test_nobody_asks_about_it(tmp_path: Path, fine: ResultRecord) -> None:
    assert Panel(tmp_path, [fine], [A]).ask(A) == []


def test_nobody_asks_about_what_is_waived(tmp_path: Path) -> None:
    assert Panel(tmp_path, [failed("s.any")], [A], waived=[CellKey("s.any")]).ask(A) == []


def test_a_question_waits_for_its_card(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.any"), failed("s.two", seconds=0.5)], [A, B])

    assert panel.ask(B) == []
    assert panel.panel.open
    (shortest,) = panel.ask(A, B)
    assert shortest.nodeid == panel.results[1].nodeid


def test_a_card_that_is_gone_gives_no_answer_and_its_sibling_does(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.any")], [A, B])
    panel.lanes.remove(A.uuid)
    (sibling,) = panel.ask(B)

    assert sibling.lane == B.uuid
    (told,) = panel.attempts
    assert (told.status, told.reason) == (Status.SKIPPED, f"no worker for {A.uuid!r}")


def test_a_gang_gets_its_cards_again_and_then_others(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.gang")], [A, B, *MORE])
    (same,) = panel.ask(A, B, *MORE)
    panel.answer(same, F)
    (others,) = panel.ask(A, B, *MORE)
    panel.answer(others, P)

    assert [(one.place, one.lanes) for one in (same, others)] == [
        (Place.SAME, (A.uuid, B.uuid)),
        (Place.SIBLING, tuple(gpu.uuid for gpu in MORE)),
    ]
    assert [one.cards for one in panel.attempts] == [same.lanes, others.lanes]


@pytest.mark.parametrize("gpus", [[A, B], [A, B, MORE[0]], [A, B, C, MORE[0]]], ids=["two", "three", "mixed"])
def test_a_gang_without_as_many_others_has_no_siblings(tmp_path: Path, gpus: list[Gpu]) -> None:
    panel = Panel(tmp_path, [failed("s.gang")], gpus)
    (same,) = panel.ask(*gpus)
    panel.answer(same, F)

    assert (panel.ask(*gpus), panel.panel.open, len(panel.attempts)) == ([], False, 1)


def test_a_gang_waits_until_all_its_cards_are_idle_and_holds_them(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.gang", seconds=0.1), failed("s.any"), failed("s.two")], [A, B])
    panel.panel.ran(2, [B.uuid])
    (alone,) = panel.ask(A)
    panel.answer(alone, P)
    (gang,) = panel.ask(A, B)

    assert (alone.lanes, gang.lanes) == ((A.uuid,), (A.uuid, B.uuid))
    assert panel.ask(B) == []
    assert panel.watched == [("gw-0", gang.lanes)]
    panel.answer(gang, P)
    assert [question.lanes for question in panel.ask(B)] == [(B.uuid,)]


def test_a_gang_one_of_whose_cards_is_gone_is_not_run_again(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.gang")], [A, B])
    panel.lanes.remove(B.uuid)

    assert panel.ask(A) == []
    assert {told.reason for told in panel.attempts} == {f"no worker for {B.uuid!r}"}


def test_what_its_worker_died_before_says_nothing(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.gang")], [A, B])
    (question,) = panel.ask(A, B)
    panel.panel.unsent(question.number, panel.lanes)

    (told,) = panel.attempts
    assert (told.status, told.reason) == (Status.SKIPPED, "the worker died that was to run it")
    assert panel.watched == []


def test_what_does_not_fit_into_the_time_is_told(tmp_path: Path) -> None:
    long = failed("s.two", seconds=opinions.BUDGET)
    panel = Panel(tmp_path, [long, failed("s.any")], [A])
    (short,) = panel.ask(A)
    panel.now = 2.0
    panel.answer(short, P)

    assert panel.ask(A) == []
    (told,) = [one for one in panel.attempts if one.nodeid == long.nodeid]
    assert (told.status, told.reason) == (
        Status.SKIPPED,
        "the 300 s for second opinions do not suffice: it took 300 s before",
    )


@pytest.mark.parametrize(("worker", "said"), [("hung", ("hang", F)), ("gw9", ("crash", Status.CRASHED))])
def test_a_worker_that_dies_of_it(tmp_path: Path, worker: str, said: tuple[str, Status]) -> None:
    panel = Panel(tmp_path, [failed("s.any")], [A])
    (question,) = panel.panel.ask({A.uuid: worker}, panel.lanes)
    panel.panel.lost(question.number, panel.lanes)

    assert [(one.cause, one.status) for one in panel.attempts] == [said]


def test_a_box_that_contradicts_itself_and_a_card_that_is_set_aside_are_told(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.any")], [A])
    (question,) = panel.ask(A)
    told = failed("s.any", evidence={"set_aside": {A.uuid: "stuck"}})
    write_again(tmp_path, question.number, Again(result=told, problem="a pin does not hold"))

    assert panel.panel.answered(question.number, panel.lanes) == {A.uuid: "stuck"}
    assert panel.problems == ["a pin does not hold"]
