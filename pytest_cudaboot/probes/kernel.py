"""What a run needs of the kernel, asked before anything is started. It starts nothing."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_cudaboot.errors import UsageError


def require(proc: Path = Path("/proc")) -> None:
    """Make sure that processes can be told apart, waited for, and ended.

    :raises UsageError: naming all that is missing, and what would bring it.
    """
    if missing := [words for words in (_no_table(proc), _no_handles()) if words]:
        raise UsageError(f"processes can not be kept in hand here: {'; '.join(missing)}")


def _no_table(proc: Path) -> str | None:
    try:
        own = (proc / str(os.getpid()) / "stat").read_text(errors="replace")
    except OSError as error:
        return f"{error.filename} can not be read ({error.strerror}); mount the kernel's own proc file system there"
    if not own.startswith(f"{os.getpid()} ("):
        return f"{proc} shows the processes of another pid namespace; mount it anew inside this one"
    return None


def _no_handles() -> str | None:
    if not hasattr(os, "pidfd_open"):
        return "this Python was built without pidfd_open; take one that was built on Linux 5.3 or later"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return (
            f"pidfd_open is refused ({error.strerror}); it needs Linux 5.3 or later (this is {os.uname().release}) "
            "and, in a container, a seccomp profile that allows it"
        )
    return None
