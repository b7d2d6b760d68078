"""Files that a run leaves behind: written whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.model import Json

VERDICT = "verdict.json"
LEDGER = "ledger.jsonl"
LOCK = ".lock"


def claim(out: Path) -> int:
    """Make the output folder and hold it for this run; the kernel lets go of it when the process ends.

    :returns: a descriptor to keep open.
    :raises UsageError: if it can not be written, or another run holds it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
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


def write_verdict(out: Path, verdict: Json) -> Path:
    """Replace the verdict, atomically.

    :raises UsageError: if the folder can not be written (a full disk among others).
    """
    path, scratch = out / VERDICT, out / (VERDICT + ".tmp")
    try:
        with scratch.open("w") as stream:
            json.dump(verdict, stream, indent=1, ensure_ascii=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise UsageError(f"can not write {str(path)!r} ({error.strerror})") from error
    return path
