"""What is sent to whom, and when: without any worker."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace

import pytest

from pytest_cudaboot.rules.timetable import CARD, Job
from pytest_cudaboot.run.instructions import LEAVE, Instruction
from pytest_cudaboot.run.lanes import LANE_VARIABLE
from pytest_cudaboot.run.places import Places
from pytest_cudaboot.run.seams import Question
from pytest_cudaboot.run.sending import Living, Sender

ONE, GANG = Job(lane=CARD, seconds=1.0), Job(lane=CARD, cards=2, seconds=1.0)


class Silent:
    """A panel that asks nothing."""

    open = False

    def ask(self, ready: Mapping[str, str], lanes: Collection[str]) -> list[Question]:
        return []

    def answered(self, number: int, lanes: Collection[str]) -> Mapping[str, str]:
        return {}

    def lost(self, number: int, lanes: Collection[str]) -> None:
        raise AssertionError("nothing was asked")

    def unsent(self, number: int, lanes: Collection[str]) -> None:
        raise AssertionError("nothing was asked")


class Stub:
    """Two cards with a worker each, and a board on which everything may go."""

    panel = Silent()
    stopped = False

    def __init__(self, *jobs: Job) -> None:
        self._jobs = list(jobs)
        self.told: list[tuple[str, Instruction]] = []
        self.ended: list[int] = []
        self.workers = {name: Living(worker=f"of {name}", lane=name, idle=True) for name in "AB"}
        specs = [SimpleNamespace(env={LANE_VARIABLE: name}) for name in "AB"]
        self.pending = list(range(len(jobs)))
        self.sender = Sender(self, Places(lambda: specs), self, self.pending)
        self.sender.dispatch()

    def living(self) -> Mapping[str, Living]:
        return self.workers

    def tell(self, name: str, instruction: Instruction) -> None:
        self.told.append((name, instruction))

    def jobs(self) -> list[Job]:
        return self._jobs

    def blocked(self, index: int) -> bool:
        return False

    def waits(self, index: int) -> bool:
        return False

    def impossible(self, index: int, reason: str) -> None:
        raise AssertionError(f"{index}: {reason}")

    def sent(self, index: int, worker: str, lanes: Sequence[str]) -> None:
        assert worker == f"of {lanes[0]}"

    def closed(self, index: int) -> None:
        self.ended.append(index)


@pytest.fixture
def gang() -> Stub:
    """One test that takes both cards."""
    stub = Stub(GANG)
    assert stub.told == [("B", LEAVE)]
    return stub


def test_each_idle_lane_is_sent_one_item() -> None:
    stub = Stub(ONE, ONE, ONE)

    assert sorted(name for name, _ in stub.told) == ["A", "B"]
    assert stub.pending == [2]


def test_a_lane_that_has_ended_its_item_is_sent_the_next() -> None:
    stub = Stub(ONE, ONE, ONE)
    stub.sender.ended(*stub.told[0])  # type: ignore[arg-type] # the token of an item is its index

    assert [name for name, _ in stub.told[2:]] == [stub.told[0][0]]
    assert (stub.pending, stub.ended) == ([], [stub.told[0][1]])


def test_a_gang_goes_when_its_partner_has_left(gang: Stub) -> None:
    gang.sender.ended("B", LEAVE)

    assert gang.told[1:] == [("A", (0, ["A", "B"]))]
    assert gang.sender.lanes(0) == ("A", "B")


def test_a_gang_goes_also_when_its_partner_dies(gang: Stub) -> None:
    del gang.workers["B"]

    assert gang.sender.gone("B", [LEAVE]) is None
    assert gang.told[1:] == [("A", (0, ["A", "B"]))]


def test_a_partner_whose_gang_is_gone_gets_nothing_before_it_has_left(gang: Stub) -> None:
    lead = gang.workers.pop("A")
    gang.sender.gone("A", [])
    gang.workers["A"] = lead
    gang.sender.dispatch()
    assert gang.told == [("B", LEAVE)]

    gang.sender.ended("B", LEAVE)
    assert [instruction for _, instruction in gang.told] == [LEAVE, LEAVE]


def test_what_a_worker_never_began_goes_to_the_next() -> None:
    stub = Stub(ONE)
    ((name, _),) = stub.told
    del stub.workers[name]

    assert stub.sender.gone(name, [0]) is None
    assert stub.told[1:] == [("B" if name == "A" else "A", 0)]


def test_nothing_is_sent_between_a_crash_and_its_report() -> None:
    stub = Stub(ONE, ONE, ONE)
    (dead, item), (other, its) = stub.told
    assert isinstance(item, int)
    assert isinstance(its, int)
    stub.sender.begun(item)
    del stub.workers[dead]

    assert stub.sender.gone(dead, [item]) == item
    stub.sender.ended(other, its)
    assert stub.told[2:] == []
    stub.sender.crash_reported()
    assert stub.told[2:] == [(other, 2)]
    assert stub.ended == [its, item]


def test_an_item_that_is_under_way_keeps_a_run_busy() -> None:
    stub = Stub(ONE)

    assert stub.sender.busy
    stub.sender.ended(stub.told[0][0], 0)
    assert not stub.sender.busy
