"""Leases between real processes: who gets a card, who is refused and told why, and what frees it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_cudaboot.errors import LeaseError, UsageError
from pytest_cudaboot.probes import lease
from pytest_cudaboot.probes.lease import acquire, obstacles, occupy
from tests.probes.leases import SECONDS, A, B, C, run, worker


def test_a_second_run_is_refused_and_told_by_whom(folder: Path) -> None:
    with run(folder, A) as first, pytest.raises(UsageError) as caught:
        acquire([A], folder=folder)

    assert re.fullmatch(
        rf"{A} is leased by pid {first.pid} of \S+ on {re.escape(socket.gethostname())} "
        r"since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ; "
        r"wait for it with --cudaboot-wait SECONDS, or name other cards with --gpus",
        str(caught.value),
    )


def test_other_cards_are_free(folder: Path) -> None:
    with run(folder, A), acquire([B, C], folder=folder) as lease:
        assert lease.uuids == (B, C)


def test_all_or_nothing_and_each_card_in_the_way_is_named(folder: Path) -> None:
    with run(folder, B) as second, run(folder, C) as third:
        with pytest.raises(LeaseError) as caught:
            acquire([C, B, A], folder=folder)

        assert f"{B} is leased by pid {second.pid} " in str(caught.value)
        assert f"; {C} is leased by pid {third.pid} " in str(caught.value)
        assert A not in str(caught.value)
        acquire([A], folder=folder).release()


def test_many_cards_at_once(folder: Path) -> None:
    cards = [f"GPU-{number:08d}" for number in range(16)]

    with acquire(cards, folder=folder) as lease:
        assert lease.uuids == tuple(cards)
        assert [found.uuid for found in obstacles(cards, folder=folder)] == cards
    assert obstacles(cards, folder=folder) == ()


def test_a_killed_run_frees_its_cards_whatever_it_wrote(folder: Path) -> None:
    with run(folder, A) as other:
        other.kill()

    assert json.loads((folder / f"{A}.run").read_text())["pid"] == other.pid
    acquire([A], folder=folder).release()


def test_a_released_card_is_nobodys(folder: Path) -> None:
    lease = acquire([A], folder=folder)
    lease.release()
    lease.release()

    assert (folder / f"{A}.run").read_text() == ""
    acquire([A], folder=folder).release()


def test_a_program_that_the_controller_starts_does_not_hold_its_lease(folder: Path) -> None:
    with acquire([A], folder=folder):
        child = subprocess.Popen(["/bin/sleep", "300"], close_fds=False)
    try:
        acquire([A], folder=folder).release()
    finally:
        child.kill()
        child.wait()


def test_an_orphan_keeps_the_card_and_is_named(folder: Path) -> None:
    with worker(folder, A) as other:
        other.kill()
        with pytest.raises(LeaseError) as caught:
            acquire([A], folder=folder)

    assert str(caught.value).startswith(
        f"{A} is still used by pid {other.told} (sleep), left behind by a run that has ended; wait for it with"
    )
    acquire([A], folder=folder, wait=SECONDS).release()  # the orphan was ended with the block


def test_a_refusal_because_of_an_orphan_leaves_no_run_lock(folder: Path) -> None:
    with worker(folder, A):
        with pytest.raises(LeaseError, match="is still used by"):
            acquire([A], folder=folder)

        assert not (folder / f"{A}.run").read_text()
        assert [found.why.partition(" by ")[0] for found in obstacles([A], folder=folder)] == [
            "is still used"
        ]


def test_processes_of_one_run_may_share_a_card(folder: Path) -> None:
    with acquire([A], folder=folder), ExitStack() as undo:
        for _ in range(2):
            undo.callback(os.close, occupy(A, folder=folder))

        assert [found.uuid for found in obstacles([A], folder=folder)] == [A]


def test_who_wants_a_card_alone_waits_until_it_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEAVING", 0.1)
    with worker(folder, A) as other:
        with pytest.raises(
            LeaseError, match=rf"^{A} is kept by .*pid {other.told} .*, which has not left it$"
        ):
            occupy(A, folder=folder, alone=True)
        os.kill(other.told, signal.SIGKILL)

    os.close(occupy(A, folder=folder, alone=True))


def test_who_came_alone_keeps_no_partner_out(folder: Path) -> None:
    with ExitStack() as undo:
        undo.callback(os.close, occupy(A, folder=folder, alone=True))
        undo.callback(os.close, occupy(A, folder=folder))


def test_what_occupies_a_card_is_not_handed_on_by_itself(folder: Path) -> None:
    busy = occupy(A, folder=folder)

    assert os.get_inheritable(busy) is False
    os.close(busy)


def test_to_wait_is_worth_it_when_the_card_is_freed(folder: Path) -> None:
    with run(folder, A) as other:
        told: list[str] = []

        def end(words: str) -> None:
            told.append(words)
            other.end()

        acquire([A], folder=folder, wait=SECONDS, say=end).release()

    assert len(told) == 1
    assert told[0].startswith(f"waiting up to {SECONDS:g} s: {A} is leased by pid {other.pid} of ")


def test_to_wait_ends_in_words(folder: Path) -> None:
    with run(folder, A) as other, pytest.raises(LeaseError) as caught:
        acquire([A], folder=folder, wait=0.3)

    assert str(caught.value).startswith(f"after 0.3 s still: {A} is leased by pid {other.pid} of ")


def test_a_run_that_waits_holds_nothing_meanwhile(folder: Path) -> None:
    """So two runs that want each other's cards can not wait for each other."""
    with run(folder, B) as other:

        def look(_: str) -> None:
            acquire([A], folder=folder).release()
            other.end()

        acquire([A, B], folder=folder, wait=SECONDS, say=look).release()


def test_a_text_that_is_not_the_holders_is_not_believed(folder: Path) -> None:
    with run(folder, A) as other:
        text = json.dumps({"host": socket.gethostname(), "pid": 1, "user": "root", "since": "yesterday"})
        (folder / f"{A}.run").write_text(text)

        assert re.fullmatch(rf"is leased by pid {other.pid} \(.+\)", obstacles([A], folder=folder)[0].why)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"host": "h"}', '{"host":"h\\u001b[2J","pid":1,"user":"u","since":"s"}']
)
def test_a_text_that_says_nothing_costs_nothing(folder: Path, text: str) -> None:
    with run(folder, A) as other:
        (folder / f"{A}.run").write_text(text)

        assert re.fullmatch(rf"is leased by pid {other.pid} \(.+\)", obstacles([A], folder=folder)[0].why)


def test_the_text_of_another_host_is_told_with_what_is_seen_here(folder: Path) -> None:
    """Pids of a container mean nothing outside of it."""
    with run(folder, A) as other:
        text = json.dumps({"host": "c0ffee", "pid": 7, "user": "ci", "since": "2026-01-01T00:00:00Z"})
        (folder / f"{A}.run").write_text(text)
        why = obstacles([A], folder=folder)[0].why

    assert why.startswith(f"is leased by pid 7 of ci on c0ffee (here pid {other.pid} (")
    assert why.endswith(") since 2026-01-01T00:00:00Z")
