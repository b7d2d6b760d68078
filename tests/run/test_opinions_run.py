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
from pytest_cudaboot.run.items import Task
from pytest_cudaboot.run.opinions import Asked, Opinions, Watchers
from pytest_cudaboot.run.seams import Question
from tests.rules.builders import A, B, C, catalog_of, item_of, result

F, P = Status.FAILED, Status.PASSED
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
        self.watched: list[tuple[str, str]] = []
        watchers = Watchers(
            add=self.attempts.append,
            begun=lambda *who: self.watched.append(who),
            ended=lambda *who: self.watched.remove(who),
            hung=lambda worker: "it hung" if worker == "hung" else None,
            problem=self.problems.append,
        )
        tasks = [Task(lane="card", cards=2 if one.spec == "s.gang" else 1) for one in results]
        asked = Asked(
            catalog=CATALOG,
            items=[item_of(one) for one in results],
            tasks=tasks,
            gpus=gpus,
            results={one.nodeid: one for one in results},
            **facts,
        )
        self.panel = Opinions(asked, watchers, folder=folder, clock=lambda: self.now)
        for index in range(len(results)):
            self.panel.ran(index, A.uuid)

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
    assert (panel.ask(A, B, C), panel.panel.open, panel.watched) == ([], False, [])


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


def test_a_gang_is_not_run_again(tmp_path: Path) -> None:
    panel = Panel(tmp_path, [failed("s.gang")], [A, B])

    assert panel.ask(A, B) == []
    assert {told.reason for told in panel.attempts} == {"a test of several cards is not run again"}


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
