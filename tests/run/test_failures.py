"""What an exception in a test means for its cell."""

from __future__ import annotations

import errno

import pytest

from pytest_cudaboot import errors
from pytest_cudaboot.model import Status
from pytest_cudaboot.run.failures import REASON_LIMIT, classify, last_words, short


@pytest.mark.parametrize(
    ("error", "status", "cause"),
    [
        (AssertionError("a"), Status.FAILED, "assertion"),
        (ValueError("a"), Status.FAILED, "assertion"),
        (errors.NumericError("a"), Status.FAILED, "numeric"),
        (errors.BuildError("a"), Status.FAILED, "compile"),
        (errors.CommandError("a"), Status.FAILED, "run"),
        (errors.CommandCrashError("a"), Status.FAILED, "crash"),
        (errors.DevicePoisonedError("a"), Status.FAILED, "run"),
        (errors.DeviceGoneError("a", cause="hang"), Status.FAILED, "hang"),
        (errors.DeviceGoneError("a", cause="hang", culprit="t.py::other"), Status.FAILED, "collateral"),
        (errors.DeviceError("a"), Status.FAILED, "run"),
        (errors.HostMemoryError("a"), Status.FAILED, "run"),
        (MemoryError("a"), Status.FAILED, "run"),
        (errors.CardAsideError("a"), Status.SKIPPED, None),
        (errors.BusyError("a"), Status.SKIPPED, None),
        (errors.CommandHangError("a"), Status.FAILED, "hang"),
        (errors.DeviceCrashError("a"), Status.FAILED, "crash"),
        (errors.DeviceHangError("a"), Status.FAILED, "hang"),
        (errors.ShimError("a"), Status.FAILED, "run"),
        (errors.ToolMissingError("a"), Status.FAILED, "run"),
        (errors.NotAsDocumentedError("a"), Status.FAILED, "assertion"),
        (errors.UnsupportedError("a", 99), Status.UNSUPPORTED, None),
        (errors.CanarySilentError("a"), Status.SILENT, None),
        (pytest.skip.Exception("a"), Status.SKIPPED, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_status_and_cause(error: BaseException, status: Status, cause: str | None) -> None:
    failure = classify(error)

    assert (failure.status, failure.cause, failure.reason, failure.problem) == (status, cause, "a", None)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_nothing_of_what_was_under_test(number: int) -> None:
    failure = classify(OSError(number, "no room"))

    assert (failure.status, failure.cause) == (Status.SKIPPED, None)
    assert failure.reason == f"the disk is full: [Errno {number}] no room"


@pytest.mark.parametrize("kind", [errors.BuildError, errors.CompileError])
def test_a_cache_that_can_not_be_filled_for_it_neither(kind: type[errors.BuildError]) -> None:
    def fill(number: int) -> Status:
        error = kind("nothing can be kept")
        error.__cause__ = OSError(number, "no room")
        return classify(error).status

    assert fill(errno.ENOSPC) is Status.SKIPPED
    assert fill(errno.EACCES) is Status.FAILED


@pytest.mark.parametrize("error", [errors.PinError("other card"), errors.BoxError("other card")])
def test_a_box_that_contradicts_itself_is_a_problem_of_the_run(error: errors.BoxError) -> None:
    assert classify(error).problem == "other card"


def test_stacks_of_a_device_process_are_left_to_its_evidence() -> None:
    assert (
        classify(errors.DeviceCrashError("died of SIGSEGV\nFatal Python error")).reason == "died of SIGSEGV"
    )


def test_an_exception_without_words_is_named() -> None:
    assert classify(KeyError()).reason == "KeyError"


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert short("a\n  b\t c") == "a b c"
    assert len(short("x" * 1000)) == REASON_LIMIT


def test_the_words_of_a_traceback_are_what_pytest_marks() -> None:
    assert last_words("file.py:1: in x\nE   ImportError: no\nE   more") == "ImportError: no"
    assert last_words("only this\nand that") == "and that"
    assert last_words("") == ""
