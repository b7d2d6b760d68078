"""Files that a run leaves behind: written whole or not at all, in a folder that one run holds at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.model import Json
from pytest_cudaboot.report.folder import LEDGER, LOCK, LOG_PATTERNS, LOGS, VERDICT, WORK
from pytest_cudaboot.report.forensics import clear
from pytest_cudaboot.rules.verdict import EXIT_USAGE, running, usage

NEVER_BEGAN = "the run ended before its session began; what it printed says why"


class Claim:
    """An output folder, held by one run: what an earlier one left there is withdrawn, the verdict above all.

    :param run: the run's name, and `started` when it began.
    :raises UsageError: if the folder can not be written, or another run holds it.
    """

    def __init__(self, out: Path, run: str, started: str) -> None:
        self.out = out
        self._run = (run, started)
        self._settled = False
        self._lock = _hold(out)
        write_verdict(out, running(run, started))
        _clear(out)

    def settle(self, verdict: Json) -> Path:
        """Put the run's verdict in its place.

        :raises UsageError: if it can not be written; what lies there then is no accept.
        """
        self._settled = True
        return write_verdict(self.out, verdict)

    def refuse(self, message: str, status: int = EXIT_USAGE) -> None:
        """Say why there is nothing to judge; what can not be written leaves the withdrawn verdict, no accept either.

        :param status: the exit status of the process.
        """
        with contextlib.suppress(UsageError):
            self.settle(usage(*self._run, message) | {"exit": status})

    def drop(self) -> None:
        """Leave no verdict, since there is no catalogue to judge by."""
        self._settled = True
        (self.out / VERDICT).unlink(missing_ok=True)

    def release(self) -> None:
        """Let go of the folder; a run that has not settled by now never began."""
        if not self._settled:
            self.refuse(NEVER_BEGAN)
        shutil.rmtree(self.out / WORK, ignore_errors=True)
        os.close(self._lock)


def write_verdict(out: Path, verdict: Json) -> Path:
    """Replace the verdict, atomically.

    :raises UsageError: if the folder can not be written (a full disk among others).
    """
    path, scratch = out / VERDICT, out / (VERDICT + ".tmp")
    try:
        with scratch.open("w", encoding="utf-8") as stream:
            json.dump(verdict, stream, indent=1, ensure_ascii=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise UsageError(f"can not write {str(path)!r} ({error.strerror})") from error
    return path


def _hold(out: Path) -> int:
    """Make the folder and lock it; the kernel lets go of the lock when the process ends.

    :returns: a descriptor to keep open.
    """
    try:
        if not out.exists():
            out.mkdir(parents=True)
            (out / ".gitignore").write_text("*\n")
        descriptor = os.open(out / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(
            f"can not write to {str(out)!r} ({error.strerror}); name another folder with --cudaboot-out"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise UsageError(
            f"another run (pid {holder}) writes to {str(out)!r}; wait for it or name another --cudaboot-out"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _clear(out: Path) -> None:
    """Remove what would be taken for this run's. The folder may be anybody's, so only names of ours go."""
    shutil.rmtree(out / WORK, ignore_errors=True)
    (out / WORK).mkdir()
    (out / LEDGER).unlink(missing_ok=True)
    for pattern in LOG_PATTERNS:
        for log in (out / LOGS).glob(pattern):
            log.unlink()
    clear(out)
