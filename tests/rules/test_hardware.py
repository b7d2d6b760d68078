"""The policy: which counters speak against a card, which for it, and which say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.probes.counters import FIELDS, REASONS
from pytest_cudaboot.rules.hardware import Change, Policy, accused, load_policy

POLICY = load_policy()
QUIET = ("energy_mj", "sent_bytes", "received_bytes")


def counters(change: Change, policy: Policy = POLICY) -> list[str]:
    return [alarm.counter for alarm in policy.alarms(change)]


def table(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return load_policy(path)


def test_nothing_added_is_nothing_said() -> None:
    assert counters(Change(seconds=60, gigabytes=100)) == []


@pytest.mark.parametrize(("seen", "gigabytes"), [(59, 0.0), (60, 60.0), (5000, 5000.0), (59, None)])
def test_a_link_may_have_some_errors(seen: int, gigabytes: float | None) -> None:
    assert counters(Change(seconds=10, deltas={"pcie.bad_tlp": seen}, gigabytes=gigabytes)) == []


@pytest.mark.parametrize(("seen", "gigabytes"), [(60, 0.0), (60, None), (5000, 4999.0)])
def test_many_in_short_time_are_a_storm(seen: int, gigabytes: float | None) -> None:
    assert counters(Change(seconds=10, deltas={"pcie.bad_tlp": seen}, gigabytes=gigabytes)) == [
        "pcie.bad_tlp"
    ]


def test_the_same_number_in_an_hour_is_none() -> None:
    assert counters(Change(seconds=3600, deltas={"aer.BadTLP@0000:00:01.0": 500})) == []


def test_a_test_of_a_moment_is_no_minute() -> None:
    """Sixty in a millisecond are sixty a second, not sixty thousand: the words must not exaggerate."""
    (alarm,) = POLICY.alarms(Change(seconds=0.001, deltas={"pcie.bad_tlp": 60}))

    assert alarm.words == "pcie.bad_tlp +60, 3600 a minute (at most 60)"


def test_a_rate_per_gigabyte_is_told() -> None:
    (alarm,) = POLICY.alarms(Change(seconds=60, deltas={"pcie.bad_tlp": 600}, gigabytes=4.0))

    assert alarm.words == "pcie.bad_tlp +600, 600 a minute (at most 60), 150 a GB moved (at most 1)"


@pytest.mark.parametrize(
    "xid", [46, 48, 54, 62, 64, 74, 79, 94, 95, 110, 119, 120, 136, 140, 143, 149, 158, 172]
)
def test_an_xid_of_the_device_is_against_it(xid: int) -> None:
    change = Change(seconds=1, xids=(xid,))

    assert counters(change) == [f"xid.{xid}"]
    assert not POLICY.accuses_toolchain(change)


@pytest.mark.parametrize("xid", [11, 13, 31, 43, 68, 69, 109, 137])
def test_an_xid_of_an_application_is_not(xid: int) -> None:
    change = Change(seconds=1, xids=(xid,))

    assert counters(change) == []
    assert POLICY.accuses_toolchain(change)


@pytest.mark.parametrize("xid", [32, 45, 63, 92, 121, 144, 154, 155, 156, 999])
def test_other_xids_say_nothing(xid: int) -> None:
    change = Change(seconds=1, xids=(xid,))

    assert counters(change) == []
    assert not POLICY.accuses_toolchain(change)


@pytest.mark.parametrize("reason", REASONS.values())
def test_clocks_that_are_held_down_decide_nothing(reason: str) -> None:
    assert counters(Change(seconds=60, deltas={f"clocks.{reason}": 60})) == []


@pytest.mark.parametrize(
    "counter", ["ecc.uncorrected", "remap.failure", "pcie.fatal", "aer_fatal.FCP@0000:00:01.0", "log.fatal"]
)
def test_one_of_these_is_enough(counter: str) -> None:
    assert counters(Change(seconds=3600, deltas={counter: 1}, gigabytes=1e6)) == [counter]


@pytest.mark.parametrize(
    "counter", ["aer_nonfatal.UnsupReq@0000:01:00.0", "aer.NonFatalErr@0000:01:00.0", "root.cor@0"]
)
def test_a_drivers_probe_is_no_fault(counter: str) -> None:
    assert counters(Change(seconds=1, deltas={counter: 10_000})) == []


def test_each_counter_that_is_read_has_a_line() -> None:
    named = [name for name in FIELDS.values() if name not in QUIET]

    assert [name for name in named if POLICY.of(name).reason == "the table has no line for it"] == []


def test_short_tests_add_up() -> None:
    one = Change(seconds=4, deltas={"pcie.replay": 20}, gigabytes=1.0, xids=(31,))
    both = one.then(Change(seconds=4, deltas={"pcie.replay": 20}, gigabytes=1.0))

    assert (both.seconds, both.gigabytes, both.xids) == (8, 2.0, (31,))
    assert (counters(one), counters(both)) == ([], ["pcie.replay"])


def test_what_one_of_them_did_not_tell_is_not_known_of_both() -> None:
    assert Change(seconds=1, gigabytes=1.0).then(Change(seconds=1)).gigabytes is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[pcie.x]\neffect = "bad"\nreason = "r"',
            r"policy.toml: \[pcie.x\]: effect: 'bad' is not one of fatal, rate",
        ),
        ('[pcie.x]\neffect = "fatal"', r"reason: is missing"),
        ('[pcie.x]\neffect = "rate"\nreason = "r"', r"per_minute: is missing: it is what makes a rate"),
        (
            '[pcie.x]\neffect = "info"\nper_gb = 1\nreason = "r"',
            r"per_gb: goes with the effect 'rate', not 'info'",
        ),
        (
            '[pcie.x]\neffect = "rate"\nper_minute = -1\nreason = "r"',
            r"per_minute: -1 is not a positive number",
        ),
        ("[pcie]\nx = 1", r"x: 1 is not a table; write \[family.counter\]"),
        ("pcie = 1", r"\[pcie\]: counter: 1 is not a table"),
        (
            '[xid.x]\neffect = "info"\ncodes = [1]\nreason = "r"\n[xid.y]\neffect = "fatal"\ncodes = [1]\nreason = "r"',
            r"XID 1 stands in 2 lines",
        ),
        ('[xid.x]\neffect = "info"\ncodes = ["1"]\nreason = "r"', r"codes: \['1'\] is not a list of numbers"),
        (
            '[pcie.x]\neffect = "info"\nlimit = 1\nreason = "r"',
            r"limit: unknown key; known: effect, at_least",
        ),
    ],
)
def test_a_table_that_means_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(CatalogError, match=words):
        table(tmp_path, text)


def test_the_card_is_accused_before_the_toolchain() -> None:
    said = [{"hardware": {"GPU-a": {"against": "toolchain"}}}, {"hardware": {"GPU-b": {"against": "card"}}}]

    assert accused(said) == "card"
    assert accused(said[:1]) == "toolchain"
    assert accused([{}, {"hardware": {"GPU-a": {"power_w": 90}}}]) is None
