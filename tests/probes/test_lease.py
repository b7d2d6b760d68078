"""Leases between real processes: who gets a card, who is refused and told why, and what frees it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import pytest_cudaboot
from pytest_cudaboot.errors import LeaseError, UsageError
from pytest_cudaboot.probes import lease, lockfile
from pytest_cudaboot.probes import lockers as lockers_module
from pytest_cudaboot.probes.lease import acquire, lease_folder, obstacles, occupy

ROOT = Path(pytest_cudaboot.__file__).parents[1]
A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
C = "GPU-cccccccc-0000-0000-0000-000000000003"
SECONDS = 20.0
NOBODY = 65534

HOLDER = """
import os, sys
from pathlib import Path
from pytest_cudaboot.probes import lease
if sys.argv[1] == "nobody" and os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
held = lease.acquire(sys.argv[3:], folder=Path(sys.argv[2]))
print(os.getpid(), flush=True)
sys.stdin.read()
held.release()
"""
# A worker: it occupies the card, has a device process inherit the lock, and goes on.
WORKER = """
import os, sys, subprocess
from pathlib import Path
from pytest_cudaboot.probes import lease
busy = lease.occupy(sys.argv[3], folder=Path(sys.argv[2]))
null = subprocess.DEVNULL
device = subprocess.Popen(["sleep", "300"], stdin=null, stdout=null, pass_fds=[busy], start_new_session=True)
print(device.pid, flush=True)
sys.stdin.read()
"""


class Other:
    """Another process that does something with a lease and then waits."""

    def __init__(self, source: str, folder: Path, *uuids: str, user: str = "") -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", source, user, str(folder), *uuids],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.popen.stdout is not None
        self.told = int(self.popen.stdout.readline())
        self.pid = self.popen.pid

    def end(self) -> None:
        self.popen.communicate(timeout=SECONDS)

    def kill(self) -> None:
        self.popen.kill()
        self.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


@contextmanager
def run(folder: Path, *uuids: str, user: str = "") -> Iterator[Other]:
    other = Other(HOLDER, folder, *uuids, user=user)
    try:
        yield other
    finally:
        other.kill()


@contextmanager
def worker(folder: Path, uuid: str) -> Iterator[Other]:
    """A worker and its device process, which lives until the block ends."""
    other = Other(WORKER, folder, uuid)
    try:
        yield other
    finally:
        other.kill()
        with suppress(ProcessLookupError):
            os.killpg(other.told, signal.SIGKILL)


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


def test_the_folder_and_its_files_are_everybodys_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with acquire([A], folder=folder):
            os.close(occupy(A, folder=folder))
    finally:
        assert os.umask(before) == 0o077

    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o666}


@pytest.fixture
def public() -> Iterator[Path]:
    """A lease folder that another user can reach; pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name, "leases")
        with acquire([A], folder=folder):
            os.close(occupy(A, folder=folder))
        yield folder


def test_another_user_can_lease_what_was_leased_before(public: Path) -> None:
    with run(public, A, user="nobody") as other:
        assert obstacles([A], folder=public)[0].why.startswith(f"is leased by pid {other.pid} of ")


def test_another_user_can_add_a_card(public: Path) -> None:
    with run(public, B, user="nobody"), pytest.raises(LeaseError, match=f"{B} is leased by pid"):
        acquire([A, B], folder=public)


def test_a_file_that_another_user_may_only_read_is_locked_all_the_same(public: Path) -> None:
    """Its old text is not the new holder's, and nobody takes it for that."""
    (public / f"{A}.run").write_text(
        json.dumps({"host": socket.gethostname(), "pid": 1, "user": "u", "since": "s"})
    )
    (public / f"{A}.run").chmod(0o444)

    with run(public, A, user="nobody") as other:
        why = obstacles([A], folder=public)[0].why
        if os.geteuid() == 0:
            assert re.fullmatch(rf"is leased by pid {other.pid} \(.+\)", why)
        with pytest.raises(LeaseError, match=f"pid {other.pid}"):
            acquire([A], folder=public)


def test_the_lock_of_a_process_that_shows_nothing_is_told_by_the_kernels_table(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockers_module, "_inheritors", lambda _: iter(()))
    with run(public, A) as other:
        (public / f"{A}.run").write_text("")

        assert f"is leased by pid {other.pid} (" in obstacles([A], folder=public)[0].why


def test_somebody_elses_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    acquire([A], folder=tmp_path / "link").release()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        os.lchown(tmp_path / "link", NOBODY, NOBODY)
        owner = NOBODY

    with pytest.raises(
        LeaseError, match=rf"link' is a symbolic link of user {owner}'s; name a folder .*DIR$"
    ):
        acquire([A], folder=tmp_path / "link")


@pytest.mark.parametrize("trap", ["link", "pipe", "folder", "hard link"])
def test_a_trap_in_place_of_a_lock_file_is_not_touched(folder: Path, tmp_path: Path, trap: str) -> None:
    folder.mkdir(0o700)
    precious, there = tmp_path / "precious", folder / f"{A}.run"
    precious.write_text("mine")
    if trap == "link":
        there.symlink_to(precious)
    elif trap == "hard link":
        there.hardlink_to(precious)
    elif trap == "pipe":
        os.mkfifo(there)
    else:
        there.mkdir()

    with pytest.raises(
        LeaseError, match=r"(is a symbolic link|is no plain file with one name|Is a directory)"
    ):
        acquire([A], folder=folder)
    assert precious.read_text() == "mine"


def test_a_folder_in_which_locks_can_be_removed_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(
        LeaseError, match=r"in '.*/leases' anybody may remove anybody's lock; `chmod 1777` it"
    ):
        acquire([A], folder=folder)


def test_a_private_folder_will_do(folder: Path) -> None:
    folder.mkdir(0o700)

    acquire([A], folder=folder).release()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        LeaseError, match=r"can not make the lease folder '.*' \(Not a directory\); name a folder"
    ):
        acquire([A], folder=tmp_path / "file" / "leases")
    with pytest.raises(LeaseError, match=r"can not open the lease folder '.*file' \(Not a directory\)"):
        acquire([A], folder=tmp_path / "file")


def test_a_folder_that_may_not_be_written(public: Path) -> None:
    public.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", HOLDER, "nobody", str(public), B],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert f"LeaseError: can not make '{public}/{B}.run' (Permission denied); name a folder" in done.stderr


def test_a_lock_file_that_was_removed_keeps_nobody_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the opening and the locking; the lock that counts is the one on the file that is there now."""
    real = lockfile.lock
    calls: list[int] = []

    def late(descriptor: int, *, shared: bool = False) -> bool:
        if not calls:
            (folder / f"{A}.run").unlink()
        calls.append(descriptor)
        return real(descriptor, shared=shared)

    monkeypatch.setattr(lockfile, "lock", late)
    with acquire([A], folder=folder):
        monkeypatch.undo()
        assert obstacles([A], folder=folder)


def test_a_lock_file_that_never_stays_ends_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = lockfile.lock

    def late(descriptor: int, *, shared: bool = False) -> bool:
        (folder / f"{A}.run").unlink()
        return real(descriptor, shared=shared)

    monkeypatch.setattr(lockfile, "lock", late)
    with pytest.raises(LeaseError, match=rf"lock file '.*/{A}.run' comes and goes; name a folder"):
        acquire([A], folder=folder)


def test_a_file_system_without_locks_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    words = (
        rf"'.*/{A}.run' can not be locked \(No locks available\), as on some network shares; name a folder"
    )
    with pytest.raises(LeaseError, match=words):
        acquire([A], folder=folder)


def test_to_look_makes_nothing(folder: Path) -> None:
    assert obstacles([A], folder=folder) == ()
    assert not folder.exists()
    folder.mkdir()
    assert obstacles([A], folder=folder) == ()
    assert list(folder.iterdir()) == []


def test_a_look_that_passes_does_not_refuse_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire([A], folder=folder).release()
    passing = os.open(folder / f"{A}.run", os.O_RDONLY)
    fcntl.flock(passing, fcntl.LOCK_EX)
    monkeypatch.setattr(time, "sleep", lambda _: lockfile.unlock(passing))

    acquire([A], folder=folder).release()


def test_a_name_that_would_leave_the_folder(folder: Path) -> None:
    with pytest.raises(LeaseError, match=r"'\.\./GPU-1' is no UUID of a card"):
        acquire(["../GPU-1"], folder=folder)


def test_where_the_locks_lie(tmp_path: Path) -> None:
    assert lease_folder({"CUDABOOT_LEASE_DIR": "/shared/leases"}) == Path("/shared/leases")
    assert lease_folder({"CUDABOOT_LEASE_DIR": ""}) == lockfile.default_folder()
    tmp_path.chmod(0o1777)
    assert lockfile.default_folder((tmp_path / "none", tmp_path)) == tmp_path / "cudaboot-leases"


def test_no_place_that_is_open_to_all(tmp_path: Path) -> None:
    with pytest.raises(
        LeaseError, match=r"none of .* is open to all users; name a folder .* CUDABOOT_LEASE_DIR$"
    ):
        lockfile.default_folder((tmp_path,))
