"""The folder of the leases: whose it is, what may lie in it, and what nobody is tricked into."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudaboot.errors import LeaseError
from pytest_cudaboot.probes import lease, lockfile
from pytest_cudaboot.probes import lockers as lockers_module
from pytest_cudaboot.probes.lease import acquire, lease_folder, obstacles, occupy
from tests.probes.leases import HOLDER, NOBODY, ROOT, SECONDS, A, B, run


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
    monkeypatch.setattr(lease, "GRACE", SECONDS)  # a starved machine is no reason to refuse

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
