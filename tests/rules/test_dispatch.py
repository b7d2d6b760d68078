"""The dispatch policy, alone and on a virtual clock: who goes now, and who must not wait for what will not happen."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.instances import hard, lanes_of, small
from benchmarks.optimum import shortest
from benchmarks.virtual_clock import play
from pytest_cudaboot.rules import search
from pytest_cudaboot.rules.dispatch import Dispatcher, Move, expected_end
from pytest_cudaboot.rules.order import bound, ranks
from pytest_cudaboot.rules.search import arrange
from pytest_cudaboot.rules.timetable import HOST, Job, Lane, Timetable
from tests.rules.jobs import TWO, card


def first_moves(jobs: list[Job], lanes: list[Lane] = TWO) -> list[Move]:
    return Dispatcher(jobs, lanes).moves(lanes, waiting=range(len(jobs)), until={}, now=0.0)


def test_the_longest_goes_first() -> None:
    moves = first_moves([card(1), card(9), card(2), card(8)])

    assert {move.job for move in moves} == {1, 3}


def test_the_way_to_go_counts_not_the_item() -> None:
    assert ranks([card(1), card(5, 0), card(4)]) == [6, 5, 4]
    assert {move.job for move in first_moves([card(4), card(4), card(1), card(9, 2)])} >= {2}


def test_what_is_bound_to_a_card_goes_there() -> None:
    moves = first_moves([card(5, lane="B"), card(5, lane="A")])

    assert {move.job: move.lanes for move in moves} == {0: ("B",), 1: ("A",)}


def test_host_work_that_cards_wait_for_goes_ahead_of_longer_host_work() -> None:
    lanes = [*TWO, Lane(name="h", serves=HOST)]
    jobs = [card(5, lane=HOST), card(3, lane=HOST), card(4, 1), card(4, 1)]

    assert [move.job for move in first_moves(jobs, lanes)] == [1]


def test_a_gang_is_never_sent_to_fewer_cards_than_it_takes() -> None:
    jobs = [card(5, cards=2), card(5)]
    lanes = [TWO[0], Lane(name="B", serves="B", free=3.0)]
    moves = Dispatcher(jobs, TWO).moves(lanes, waiting=[0], until={1: 3.0}, now=0.0)

    assert moves == []


def test_what_is_short_enough_runs_before_a_gang_and_what_is_not_waits() -> None:
    """The gang is laid out for when B is free; A is used until then, and no longer."""
    jobs = [card(20, cards=2), card(6), card(4), card(9)]
    plan = Timetable(jobs, [TWO[0], Lane(name="B", serves="B", free=6.0)], [0, 2, 3], {1: 6.0}, now=0.0).fill(
        [0, 3, 2]
    )

    assert (plan.slots[0].start, plan.slots[2].start) == (6.0, 0.0)
    assert plan.slots[3].start == 26.0


def test_a_worker_that_comes_back_is_used_at_once() -> None:
    """Its coming is all that tells; a plan that waits for the time at which it was expected would wait for ever."""
    jobs = [card(5, lane="A"), card(5, lane="B")]
    dispatcher = Dispatcher(jobs, TWO)
    coming = [TWO[0], Lane(name="B", serves="B", free=3.0)]
    assert [move.job for move in dispatcher.moves(coming, waiting=[0, 1], until={}, now=0.0)] == [0]

    back = [Lane(name="A", serves="A", free=5.0), TWO[1]]
    assert dispatcher.moves(back, waiting=[1], until={0: 5.0}, now=1.0) == [Move(job=1, lanes=("B",))]


def test_what_no_lane_could_take_at_first_is_sent_when_one_comes() -> None:
    jobs = hard(3, 3)
    dispatcher = Dispatcher(jobs, lanes_of(3, hosts=0))
    hosts = {index for index, job in enumerate(jobs) if job.lane == HOST and not job.after}

    moves = dispatcher.moves(lanes_of(3, hosts=len(hosts)), waiting=range(len(jobs)), until={}, now=0.0)

    assert hosts <= {move.job for move in moves}


def test_what_was_blocked_leaves_no_hole_in_the_plan() -> None:
    jobs = [card(5, lane="A"), card(5, lane="A")]
    dispatcher = Dispatcher(jobs, TWO)
    (first,) = dispatcher.moves(TWO, waiting=[0, 1], until={}, now=0.0)
    other = 1 - first.job

    assert [move.job for move in dispatcher.moves(TWO, waiting=[other], until={}, now=0.5)] == [other]


@pytest.mark.parametrize(
    ("now", "end"),
    [(2.0, 5.0), (4.9, 5.0), (5.1, 5.2), (20.0, 35.0)],
    ids=["on time", "nearly", "a little late", "what takes longer takes longer still"],
)
def test_when_something_ends(now: float, end: float) -> None:
    assert expected_end(0.0, 5.0, now) == pytest.approx(end, abs=0.02)


def test_lowerers_change_rarely() -> None:
    """Four of each on two cards, and the order in which they come mixes them."""
    jobs = [card(5, warm=warm) for _ in range(4) for warm in ("xla", "iree")]

    assert play(jobs, lanes_of(2)).switches == 0


def test_the_same_question_has_the_same_answer() -> None:
    jobs = hard(4, 1)

    assert arrange(jobs, lanes_of(4), 2_000) == arrange(jobs, lanes_of(4), 2_000)


def test_a_gang_is_laid_out_only_on_cards_that_are_free_at_the_same_time() -> None:
    """A would have room for it for a moment, but not when C and D are free."""
    lanes = [*(Lane(name=name, serves=name) for name in "ABCD"), Lane(name="h", serves=HOST)]
    busy = [
        card(24, lane=HOST),
        card(21, lane="A"),
        card(26, 0, lane="A"),
        card(30, lane="C"),
        card(30, lane="D"),
    ]
    gang = Timetable([*busy, card(3, cards=3)], lanes, range(6), {}).fill(range(6)).slots[5]

    assert (gang.start, set(gang.lanes)) == (30.0, {"B", "C", "D"})


def test_a_gang_has_nothing_to_switch_from() -> None:
    """It clears its cards: that A is warm with another lowerer makes it no longer, and takes no card from it."""
    lanes = [*TWO, Lane(name="h", serves=HOST)]
    before = [
        card(2, lane="A", warm="iree"),
        card(10, lane=HOST),
        card(5, 1, lane="A", warm="xla"),
        card(4, lane="B", warm="xla"),
    ]
    gang = Timetable([*before, card(5, cards=2, warm="xla")], lanes, range(5), {}).fill(range(5)).slots[4]

    assert (gang.start, gang.end, set(gang.lanes)) == (4.0, 9.0, {"A", "B"})


def test_a_chain_does_not_pile_up_on_a_card_that_has_work_of_its_own() -> None:
    """Both links would end as soon on A, which then had to do the rest of its own when B is done."""
    jobs = [card(6), card(6, 0), card(4, lane="A"), card(4, lane="B")]
    slots = Timetable(jobs, TWO, range(4), {}).fill([0, 1, 2, 3]).slots

    assert {slots[0].lanes, slots[1].lanes} == {("A",), ("B",)}
    assert max(slot.end for slot in slots.values()) == 12.0


@pytest.mark.parametrize("seed", range(2))
def test_a_run_keeps_every_rule(seed: int) -> None:
    """Nothing begins before what it needs has ended, and no lane has two things at once, whatever was believed."""
    jobs = hard(4, seed)
    believed = [
        Job(lane=job.lane, cards=job.cards, seconds=10.0, warm=job.warm, after=job.after) for job in jobs
    ]
    played = play(jobs, lanes_of(4), believed)

    ends = {index: begin + jobs[index].seconds for index, begin in played.begins.items()}
    assert set(ends) == set(range(len(jobs)))
    assert all(played.begins[index] >= ends[need] - 1e-9 for index in ends for need in jobs[index].after)
    for lane in lanes_of(4):
        there = sorted(
            (played.begins[index], ends[index]) for index in ends if lane.name in played.lanes[index]
        )
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(there))
    assert all(len(set(played.lanes[index])) == job.cards for index, job in enumerate(jobs))


def test_the_bound_is_one() -> None:
    jobs = [card(3), card(5, cards=2), card(2, 0)]

    assert bound(jobs, 2) == (3 + 10 + 2) / 2
    assert play(jobs, lanes_of(2)).makespan >= bound(jobs, 2)


@pytest.mark.parametrize("seed", [*range(8), 18, 106])
def test_a_small_run_is_as_short_as_any(seed: int) -> None:
    """By a search that shares nothing with the policy; gangs and chains are among the jobs."""
    jobs, lanes = small(seed)

    assert play(jobs, lanes).makespan == shortest(jobs, lanes)


def test_a_search_that_is_stuck_begins_anew_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this instance no order is found from the usual ones that is as good as what a fresh start leads to."""
    jobs, lanes = small(155)
    best = shortest(jobs, lanes)
    assert arrange(jobs, lanes).lay_out(jobs, lanes).end == best

    monkeypatch.setattr(search, "CLIMB", 10**6)
    assert arrange(jobs, lanes).lay_out(jobs, lanes).end > best


def test_what_ends_early_lets_what_is_next_begin() -> None:
    jobs = [card(50, lane="A"), card(50, 0, lane="A"), card(99, lane="B")]
    dispatcher = Dispatcher(jobs, TWO)
    assert {move.job for move in dispatcher.moves(TWO, waiting=[0, 1, 2], until={}, now=0.0)} == {0, 2}

    later = [TWO[0], Lane(name="B", serves="B", free=99.0)]
    assert [move.job for move in dispatcher.moves(later, waiting=[1], until={2: 99.0}, now=49.5)] == [1]
