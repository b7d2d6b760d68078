"""The injector: inert unless it is asked for, and what it does to a process is over when it is over."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pytest_cudaboot.faults import acts
from pytest_cudaboot.faults.plugin import Marks
from pytest_cudaboot.faults.schedule import Schedule

LOADED = ("-p", "pytest_cudaboot.faults.plugin", "-p", "no:cacheprovider")
NONE = Schedule(seed=0, faults=()).dumps()


def test_without_a_schedule_nothing_happens(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_fine(): pass")

    pytester.runpytest_inprocess(*LOADED).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NONE, "--faults needs a run with --gpus, and this is none"),
        ("[]", "--faults 'schedule.json': no schedule of faults: TypeError*"),
        (None, "--faults 'schedule.json': *No such file*"),
    ],
)
def test_what_can_not_be_is_a_usage_error(pytester: pytest.Pytester, text: str | None, words: str) -> None:
    if text is not None:
        (pytester.path / "schedule.json").write_text(text)
    result = pytester.runpytest_inprocess(*LOADED, "--faults", "schedule.json")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {words}"])


def test_a_fault_is_committed_once_in_a_run(tmp_path: Path) -> None:
    first, again, other = (
        Marks(str(tmp_path), "run"),
        Marks(str(tmp_path), "run"),
        Marks(str(tmp_path), "new"),
    )

    assert (first.take(0), again.take(0), again.take(1), other.take(0)) == (True, False, True, True)


def test_memory_is_refused_once() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError):
        acts.hit_memory_limit()

    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytearray(acts.HEADROOM * 2)) == acts.HEADROOM * 2
