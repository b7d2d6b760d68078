"""A layout that is made more even: what it gives away, for what, and what must stay as it is."""

from __future__ import annotations

import pytest

from benchmarks.instances import grown, lanes_of
from pytest_cudaboot.rules.levelling import levelled
from pytest_cudaboot.rules.order import Arrangement, bound, candidates
from pytest_cudaboot.rules.search import arrange
from pytest_cudaboot.rules.sequence import Course, Lineup
from pytest_cudaboot.rules.timetable import CARD, HOST, SWITCH, Job, Lane, Slot, Timetable
from tests.rules.jobs import TWO, card


def level(jobs: list[Job], on: str, lanes: list[Lane] = TWO) -> Timetable:
    """What comes of jobs that are one after another on one card each, `AAB`, after a hundred steps at most."""
    slots = (
        Timetable(jobs, lanes, range(len(jobs)), {}, kept=dict(enumerate(map(tuple, on))))
        .fill(range(len(jobs)))
        .slots
    )
    return levelled(jobs, lanes, slots, enough=bound(jobs, len(lanes)), steps=100).lay_out(jobs, lanes)


def test_a_job_goes_to_the_card_that_is_done_sooner() -> None:
    assert level([card(4), card(4), card(4), card(4)], "AAAB").end == 8.0


def test_two_jobs_change_places_where_one_alone_would_be_too_long() -> None:
    """6 + 5 here and 4 + 3 there: only 6 for 4 makes both end at 9."""
    assert level([card(6), card(5), card(4), card(3)], "AABB").end == 9.0


def test_a_job_that_others_wait_for_goes_ahead_of_one_that_nobody_waits_for() -> None:
    assert level([card(5, lane="A"), card(3, lane="A"), card(5, 1, lane="B")], "AAB").end == 8.0


def test_a_job_that_is_in_the_way_goes_behind_one_that_can_not_go_ahead_of_it() -> None:
    """The chain's first link begins on the host after what is on A from the begin; but that can wait."""
    lanes = [*TWO, Lane(name="h", serves=HOST)]
    jobs = [
        card(9, lane="A"),
        card(2, lane=HOST),
        card(1, 1, lane=HOST),
        card(6, 2, lane="A"),
        card(6, 3, lane="B"),
    ]

    assert level(jobs, "AhhAB", lanes).end == 18.0


def test_something_short_that_clears_a_card_comes_between_two_lowerers() -> None:
    jobs = [
        card(6, lane="A", warm="xla"),
        card(6, lane="A", warm="iree"),
        card(12, lane="B"),
        card(0.5, warm=""),
    ]

    assert level(jobs, "AABB").end == 12.5 < 12 + SWITCH


def test_what_is_bound_to_a_card_stays_there_and_needs_come_first() -> None:
    jobs = grown(4, 0)
    lanes = lanes_of(4)
    slots = candidates(jobs, 4)[0].lay_out(jobs, lanes).slots
    table = levelled(jobs, lanes, slots, enough=bound(jobs, 4), steps=300).lay_out(jobs, lanes)

    assert table.slots.keys() == set(range(len(jobs)))
    for index, job in enumerate(jobs):
        slot = table.slots[index]
        assert job.lane == CARD or job.lane == slot.lanes[0] or slot.lanes[0].startswith(job.lane)
        assert all(table.slots[need].end <= slot.start + 1e-9 for need in job.after)
        assert len(set(slot.lanes)) == job.cards


def test_a_gang_never_has_one_card_twice() -> None:
    """A change that gains nothing may move one of its cards to where another, thought of before, moves the other one."""
    jobs = [
        card(2, warm="xla"),
        card(8, cards=2, warm="iree"),
        card(4, cards=2),
        card(1, cards=2, warm="xla"),
    ]
    lanes = [*TWO, Lane(name="C", serves="C")]

    arranged = arrange(jobs, lanes, 3_000)

    assert all(len(set(there)) == jobs[index].cards for index, there in arranged.lanes.items())
    assert arranged.lay_out(jobs, lanes).end >= bound(jobs, 3)


def test_nothing_is_touched_where_it_is_good_enough() -> None:
    jobs = [card(4), card(2)]
    slots = {0: Slot(start=0, end=4, lanes=("A",)), 1: Slot(start=4, end=6, lanes=("A",))}

    arranged = levelled(jobs, TWO, slots, enough=6.0, steps=100)

    assert arranged == Arrangement((0, 1), {0: ("A",), 1: ("A",)}, in_turn=True)


def test_a_card_that_comes_late_and_has_nothing_to_do_is_not_waited_for() -> None:
    lanes = [TWO[0], Lane(name="B", serves="B", free=50.0)]

    assert level([card(4), card(4)], "AA", lanes).end == 8.0


@pytest.mark.parametrize("seed", range(3))
def test_a_lineup_is_as_long_as_what_is_laid_out_of_it(seed: int) -> None:
    """Gangs, chains and switches: the quick way and the timetable are of one mind on when each job begins."""
    jobs, lanes = grown(8, seed), lanes_of(8)
    slots = candidates(jobs, 8)[0].lay_out(jobs, lanes).slots
    arranged = levelled(jobs, lanes, slots, enough=bound(jobs, 8), steps=50)
    numbers = {lane.name: number for number, lane in enumerate(lanes)}
    lineup = Lineup(
        arranged.order,
        {index: tuple(numbers[name] for name in there) for index, there in arranged.lanes.items()},
    )

    course, table = Course(jobs, lanes, lineup), arranged.lay_out(jobs, lanes)

    assert course.start == pytest.approx([table.slots[index].start for index in range(len(jobs))])
    assert course.switches


def test_a_gang_clears_its_cards_of_its_own_lowerer_too() -> None:
    jobs = [card(5, cards=2, warm="xla"), card(5, lane="A", warm="iree")]

    course = Course(jobs, TWO, Lineup((0, 1), {0: (0, 1), 1: (0,)}))

    assert course.done == [10.0, 5.0]


def test_a_gap_is_left_alone_where_jobs_are_laid_out_in_turn() -> None:
    jobs = [card(5, lane="B"), card(2, 0, lane="A"), card(3, lane="A")]

    starts = {
        in_turn: Timetable(jobs, TWO, range(3), {}, in_turn=in_turn).fill(range(3)).slots[2].start
        for in_turn in (False, True)
    }

    assert starts == {False: 0.0, True: 7.0}
