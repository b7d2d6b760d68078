"""What a seed means: always the same, each kind in its turn, and only what a cell can have."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.faults.schedule import KINDS, Act, Schedule, Target, Victim, draw
from pytest_cudaboot.faults.suite import make_suite
from pytest_cudaboot.model import CellKey

HOST = Target(cell=CellKey("s.host"))
DEVICE = Target(cell=CellKey("s.device", "xla", "GPU-a"), calls={"setup": 1, "call": 3, "teardown": 1})
MANY = [
    Target(cell=CellKey(f"s.n{number}"), calls={"setup": 1, "call": number, "teardown": 1})
    for number in range(1, 9)
]


def test_a_seed_always_gives_the_same_suite_and_schedule() -> None:
    assert draw(7, MANY) == draw(7, MANY) != draw(8, MANY)
    assert make_suite(7, ["GPU-a"]) == make_suite(7, ["GPU-a"]) != make_suite(8, ["GPU-a"])


def test_two_hundred_seeds_have_each_kind_often_and_some_have_none() -> None:
    schedules = [draw(seed, MANY) for seed in range(200)]
    kinds = Counter((fault.victim, fault.act) for schedule in schedules for fault in schedule.faults)

    assert min(kinds[kind] for kind in KINDS) >= 9
    assert sum(not schedule.faults for schedule in schedules) == 8


def test_a_run_ends_by_one_fault_at_most() -> None:
    ends = [sum(fault.terminal for fault in draw(seed, MANY).faults) for seed in range(200)]

    assert set(ends) == {0, 1}


def test_faults_of_a_device_are_aimed_at_calls_that_a_test_makes() -> None:
    faults = [fault for seed in range(200) for fault in draw(seed, [HOST, DEVICE]).faults]
    of_device = [fault for fault in faults if fault.victim is Victim.DEVICE]

    assert {fault.cell for fault in of_device} == {DEVICE.cell}
    assert all(fault.call is not None and 1 <= fault.call <= DEVICE.calls[fault.phase] for fault in of_device)
    assert {fault.call for fault in faults if fault.victim is not Victim.DEVICE} == {None}


def test_what_hangs_hangs_where_the_budget_is_the_specs_own() -> None:
    hangs = [
        f for seed in range(200) for f in draw(seed, MANY).faults if f.act in (Act.HANG, Act.HANG_HOLDING)
    ]

    assert {fault.phase for fault in hangs} == {"call"}


def test_a_schedule_survives_its_file() -> None:
    schedule = draw(3, MANY)

    assert schedule.faults
    assert Schedule.loads(schedule.dumps()) == schedule


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no schedule of faults: JSONDecodeError"),
        ("[]", "no schedule of faults: TypeError"),
        ('{"seed": 1}', "no schedule of faults: KeyError('faults')"),
        (draw(3, MANY).dumps().replace('"call"', '"lunch"', 1), "right is what `Schedule.dumps` gives"),
        (draw(3, MANY).dumps().replace('"device"', '"nobody"', 1), "'nobody' is not a valid Victim"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        Schedule.loads(text)
