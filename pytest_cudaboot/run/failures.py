"""What an exception in a test means: its cause, a short reason, and whether the box itself is at fault."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import pytest

from pytest_cudaboot.errors import (
    BoxError,
    BuildError,
    BusyError,
    CanarySilentError,
    CardAsideError,
    CommandCrashError,
    CommandError,
    CommandHangError,
    DeviceCrashError,
    DeviceError,
    DeviceGoneError,
    DeviceHangError,
    LeakError,
    NumericError,
    ShimError,
    ToolMissingError,
    UnsupportedError,
)
from pytest_cudaboot.model import Status

REASON_LIMIT = 500
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)  # it says nothing of what was under test
CAUSES: tuple[tuple[type[Exception], str], ...] = (  # the first that fits, so subclasses before their bases
    (NumericError, "numeric"),
    (LeakError, "leak"),
    (BuildError, "compile"),
    (DeviceCrashError, "crash"),
    (DeviceHangError, "hang"),
    (CommandHangError, "hang"),
    (CommandCrashError, "crash"),
    (CommandError, "run"),
    (DeviceError, "run"),
    (MemoryError, "run"),
    (ShimError, "run"),
    (ToolMissingError, "run"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """How a phase of a test failed.

    :param problem: words for the verdict `environment`, if the box contradicts itself.
    :param root: whether it explains the failure of an earlier phase of the same test.
    """

    status: Status
    cause: str | None
    reason: str
    problem: str | None = None
    root: bool = False


def classify(error: BaseException, nodeid: str | None = None) -> Failure:
    """Say what an exception means.

    :param nodeid: the test that it was raised in: what has been broken under another one is not its fault.
    """
    reason = short(_words(error))
    if isinstance(error, pytest.skip.Exception | CardAsideError | BusyError):
        return Failure(status=Status.SKIPPED, cause=None, reason=reason)
    if _is_of_a_full_disk(error):
        return Failure(status=Status.SKIPPED, cause=None, reason=f"the disk is full: {reason}")
    if isinstance(error, UnsupportedError):
        return Failure(status=Status.UNSUPPORTED, cause=None, reason=reason)
    if isinstance(error, CanarySilentError):
        return Failure(status=Status.SILENT, cause=None, reason=reason)
    problem = reason if isinstance(error, BoxError) else None
    return Failure(status=Status.FAILED, cause=_cause(error, nodeid), reason=reason, problem=problem)


def _is_of_a_full_disk(error: BaseException) -> bool:
    """Whether it is the kernel's word for that, also where an error of ours says what could not be kept because of it."""
    cause = error.__cause__ if isinstance(error, BuildError) else error
    return isinstance(cause, OSError) and cause.errno in FULL_DISK


def short(text: str) -> str:
    """The beginning of a message, on one line: a verdict's reason is read, not scrolled."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_LIMIT else line[: REASON_LIMIT - 1] + "…"


def last_words(traceback: str) -> str:
    """What pytest marks as the error in a traceback, or its last line."""
    lines = traceback.strip().splitlines() or [""]
    told = [line[1:].strip() for line in lines if line.startswith("E ")]
    return told[0] if told else lines[-1]


def _words(error: BaseException) -> str:
    """What a device process wrote as it died is evidence of its own, and nobody reads stacks in a table."""
    text = str(error) or type(error).__name__
    return text.partition("\n")[0] if isinstance(error, DeviceError) else text


def _cause(error: BaseException, nodeid: str | None) -> str:
    if isinstance(error, DeviceGoneError) and error.cause is not None:
        return error.cause if error.culprit in (None, nodeid) else "collateral"
    return next((cause for kind, cause in CAUSES if isinstance(error, kind)), "assertion")
