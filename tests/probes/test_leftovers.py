"""A process that is left on a card is ended, and nobody else who has its number by then."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from pytest_cudaboot.probes import leftovers, procfs
from pytest_cudaboot.probes.leftovers import Leftover


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/usr/bin/env", "sleep", "60"]) as process:
        yield process
        process.kill()


def named(process: subprocess.Popen[bytes], *, later: int = 0) -> Leftover:
    started = procfs.started_at(process.pid)
    assert started is not None
    return Leftover(pid=process.pid, started=started + later, name="sleep")


def test_what_is_left_is_ended(sleeper: subprocess.Popen[bytes]) -> None:
    assert leftovers.end(named(sleeper))
    assert sleeper.wait() == -9


def test_another_process_of_that_number_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    assert leftovers.end(named(sleeper, later=-1))
    assert sleeper.poll() is None


def test_what_has_ended_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    left = named(sleeper)
    sleeper.kill()
    sleeper.wait()

    assert leftovers.end(left)
