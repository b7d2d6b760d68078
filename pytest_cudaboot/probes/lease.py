"""Leases of cards: nobody else's run gets a card that is leased, or that an earlier run's process still uses.

Each card has two locks. The *run* lock is the controller's alone. The *busy* lock is shared by whatever uses the card:
a descriptor of it is inherited by each device process and command, so that an orphan keeps the card busy after its
run is gone. For a new run both must be free. The kernel frees both when the last process that has them ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pytest_cudaboot.errors import LeaseError
from pytest_cudaboot.probes import lockfile
from pytest_cudaboot.probes.lockers import in_words, lockers

WAYS_OUT = "wait for it with --cudaboot-wait SECONDS, or name other cards with --gpus"
GRACE = 0.1  # seconds that a passing look at a lock (another run's, or a doctor's) may hold it
POLL = 0.1
PATIENCE = 5.0
LEAVING = 30.0  # seconds for what was told to leave a card, or killed on it, where many want a processor

_UUID = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_PLAIN = re.compile(r"[\w .:@+-]{1,100}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Obstacle:
    """A card that can not be had.

    :param why: who has it, in words.
    """

    uuid: str
    why: str

    def __str__(self) -> str:
        return f"{self.uuid} {self.why}"


class Lease:
    """The run locks of some cards; given back by `release`, or by the kernel when this process ends."""

    def __init__(self, locks: Mapping[str, int]) -> None:
        self._locks = dict(locks)
        self.uuids = tuple(locks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the cards back; safe to call twice."""
        while self._locks:
            _, descriptor = self._locks.popitem()
            lockfile.write(descriptor, "")
            lockfile.unlock(descriptor)


def lease_folder(environ: Mapping[str, str]) -> Path:
    """Where the locks lie: what `CUDABOOT_LEASE_DIR` names, else the machine's own place."""
    named = environ.get(lockfile.VARIABLE)
    return Path(named).absolute() if named else lockfile.default_folder()


def acquire(
    uuids: Sequence[str],
    *,
    folder: Path,
    wait: float = 0.0,
    say: Callable[[str], None] | None = None,
) -> Lease:
    """Lease all of the cards, or none.

    While it waits it holds nothing, so that two runs can not wait for each other.

    :param wait: seconds to wait for cards that are in use.
    :param say: told once what it waits for.
    :raises LeaseError: if a card is in use (by whom and since when), or the folder can not be trusted.
    """
    started = time.monotonic()
    names = sorted(set(uuids))
    with lockfile.folder(folder) as directory:
        while True:
            lease, obstacles = _attempt(directory, names)
            if lease is not None:
                return lease
            waited = time.monotonic() - started
            if waited >= max(wait, GRACE):
                before = f"after {wait:g} s still: " if wait else ""
                raise LeaseError(f"{before}{'; '.join(map(str, obstacles))}; {WAYS_OUT}")
            if say is not None and waited >= GRACE:
                say(f"waiting up to {wait:g} s: {'; '.join(map(str, obstacles))}")
                say = None
            time.sleep(POLL / 4 if waited < GRACE else POLL)


def occupy(uuid: str, *, folder: Path, alone: bool = False) -> int:
    """A descriptor that keeps the card busy while any process has it; hand it on with `pass_fds`.

    :param alone: wait until nothing else is on the card, as a process that has been told to leave it, or killed.
    :raises LeaseError: if somebody else keeps the card to himself, or does not leave it.
    """
    deadline = time.monotonic() + (LEAVING if alone else PATIENCE)
    with lockfile.folder(folder) as directory:
        while True:
            descriptor, locked = lockfile.take(directory, f"{_named(uuid)}.busy", shared=not alone)
            if locked and (not alone or lockfile.lock(descriptor, shared=True)):
                return descriptor
            who = in_words(lockers(descriptor))
            os.close(descriptor)
            if time.monotonic() >= deadline:
                why = "has not left it" if alone else "is no part of this run"
                raise LeaseError(f"{uuid} is kept by {who}, which {why}")
            time.sleep(POLL / 4)


def obstacles(uuids: Sequence[str], *, folder: Path) -> tuple[Obstacle, ...]:
    """The cards that are in use now. It makes no file, and holds each lock for a moment only."""
    try:
        with lockfile.folder(folder, create=False) as directory:
            found = [_look(directory, uuid) for uuid in sorted(set(uuids))]
    except FileNotFoundError:
        return ()
    return tuple(obstacle for obstacle in found if obstacle is not None)


def _attempt(directory: int, uuids: Sequence[str]) -> tuple[Lease | None, list[Obstacle]]:
    """All the cards, or what is in the way of each that can not be had."""
    found: list[Obstacle] = []
    with contextlib.ExitStack() as undo:
        locks: dict[str, int] = {}
        for uuid in uuids:
            descriptor, locked = lockfile.take(directory, f"{_named(uuid)}.run")
            undo.callback(os.close, descriptor)
            locks[uuid] = descriptor
            why = _busy(directory, uuid) if locked else _leased(descriptor)
            found += [Obstacle(uuid=uuid, why=why)] if why else []
        if found:
            return None, found
        undo.pop_all()
    for descriptor in locks.values():
        lockfile.write(descriptor, _signature())
    return Lease(locks), []


def _look(directory: int, uuid: str) -> Obstacle | None:
    descriptor = lockfile.existing(directory, f"{_named(uuid)}.run")
    why = None
    if descriptor is not None:
        with _closing(descriptor):
            why = None if lockfile.lock(descriptor) else _leased(descriptor)
    why = why or _busy(directory, uuid)
    return Obstacle(uuid=uuid, why=why) if why else None


def _busy(directory: int, uuid: str) -> str | None:
    """Who of an earlier run still uses a card that no run has."""
    descriptor = lockfile.existing(directory, f"{_named(uuid)}.busy")
    if descriptor is None:
        return None
    with _closing(descriptor):
        if lockfile.lock(descriptor):
            return None
        return f"is still used by {in_words(lockers(descriptor))}, left behind by a run that has ended"


def _leased(descriptor: int) -> str:
    """Who has the run lock. A text may be older than the lock, so the kernel's word is held against it."""
    keepers, said = lockers(descriptor), _read(descriptor)
    if said and said["host"] != socket.gethostname():
        seen = f" (here {in_words(keepers)})" if keepers else ""
        return (
            f"is leased by pid {said['pid']} of {said['user']} on {said['host']}{seen} since {said['since']}"
        )
    if said and (not keepers or said["pid"] in map(str, keepers)):
        return f"is leased by pid {said['pid']} of {said['user']} on {said['host']} since {said['since']}"
    return f"is leased by {in_words(keepers)}"


def _signature() -> str:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "user": _user(), "since": now})


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # containers run as numbers that have no name
        return f"user {os.geteuid()}"


def _read(descriptor: int) -> dict[str, str] | None:
    """What the holder wrote. Anybody may write there, so nothing that is not plain gets into a message."""
    try:
        said = json.loads(lockfile.read(descriptor))
        words = {name: str(said[name]) for name in ("host", "pid", "user", "since")}
    except (ValueError, KeyError, TypeError):
        return None
    return words if all(_PLAIN.fullmatch(word) for word in words.values()) else None


def _named(uuid: str) -> str:
    """The UUID as a file name."""
    if not _UUID.fullmatch(uuid):
        raise LeaseError(f"{uuid!r} is no UUID of a card")
    return uuid


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)
