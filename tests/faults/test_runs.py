"""A handful of seeds, whole runs each; `benchmarks/faults.py` runs as many as wanted."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cudaboot.faults.check import Observed, problems
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes.lease import acquire
from tests.boxes.box import BoxGate
from tests.faults import drive
from tests.faults.drive import Case, Tried, commit

# Of those on small boxes the fewest that commit each kind between them; one has two cards.
SEEDS = (38, 249, 90, 261)
KINDS = {
    *("device:hang", "device:kill", "device:sticky", "device:exit", "device:abort", "device:crash"),
    *("worker:kill", "worker:memory-limit", "controller:kill", "controller:full-disk"),
}


def told(tried: Tried) -> str:
    return "\n".join((*tried.problems, tried.output))


def test_the_handful_has_something_of_everything() -> None:
    cases = [Case.of(seed) for seed in SEEDS]

    assert {case.schedule.faults[number].kind for case in cases for number in case.expected.fired} >= KINDS


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed != SEEDS[2]])
def test_a_seed_is_reported_as_it_must_be(seed: int, tmp_path: Path, libraries: Path) -> None:
    tried = commit(Case.of(seed), tmp_path, libraries)

    assert not tried.problems, told(tried)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> Tried:
    return commit(Case.of(SEEDS[2]), tmp_path_factory.mktemp("tried"), libraries)


def test_a_seed_has_the_same_verdict_when_it_is_run_again(
    tried: Tried, tmp_path: Path, libraries: Path
) -> None:
    again = commit(tried.case, tmp_path, libraries)

    assert not tried.problems, told(tried)
    assert again.normal == tried.normal


def tampered(observed: Observed, **changes: object) -> Observed:
    """The same run, as a judge with a fault of its own would have reported it."""
    judged = observed.replayed | changes
    return replace(observed, verdict=judged, replayed=judged)


def cells(observed: Observed, which: str, **changes: object) -> list[Json]:
    """The cells, the first of that outcome changed."""
    found = next(cell for cell in observed.replayed["cells"] if cell["outcome"] == which)
    return [cell | changes if cell is found else cell for cell in observed.replayed["cells"]]


def without(observed: Observed, kind: str) -> Observed:
    """A ledger that lacks one line of a kind."""
    line = next(line for line in observed.ledger if line["type"] == kind)
    return replace(observed, ledger=tuple(other for other in observed.ledger if other is not line))


def test_the_check_sees_what_a_judge_could_get_wrong(tried: Tried) -> None:
    seen, due = tried.observed, tried.case.expected
    wrong = {
        "not told of exactly once": without(seen, "result"),
        "planned were other cells": without(seen, "plan"),
        "is holds (None)": tampered(seen, cells=cells(seen, "broken", outcome="holds", cause=None)),
        "is broken (hang)": tampered(seen, cells=cells(seen, "broken", cause="hang")),
        "due was holds": tampered(seen, cells=cells(seen, "holds", outcome="broken", cause="crash")),
        "due was blocked": tampered(seen, cells=cells(seen, "blocked", outcome="not-run")),
        "were never committed": replace(seen, fired=frozenset()),
        "in cells that should not have run": replace(seen, fired=seen.fired | {9}),
        "exit status 0": replace(seen, returncode=0),
        "the verdict is accept": replace(seen, earnest=seen.earnest | {"verdict": "accept"}),
        "the verdict is not the ledger's": replace(seen, verdict=seen.verdict | {"verdict": "accept"}),
        "process 7 outlives": replace(seen, left=("process 7 outlives the run",)),
    }

    for words, observed in wrong.items():
        assert words in "\n".join(problems(due, observed)), words


def test_what_a_run_leaves_alive_or_locked_is_found(
    tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "SWEEP_SECONDS", 0.0)
    gate, mark = BoxGate(tmp_path, libraries).on("one-h200"), f"left by {os.getpid()}"
    left = subprocess.Popen(["/usr/bin/env", "sleep", "60"], env=os.environ | {drive.MARK: mark})
    # Between two programs of one process its environment can not be seen.
    while not drive._marked(mark.encode(), b"no-run-of-that-name") and left.poll() is None:
        time.sleep(0.01)
    with acquire(gate.uuids, folder=tmp_path / "leases"):
        found = [*drive._alive(mark, "no-run-of-that-name"), *drive._leased(gate)]
    left.kill()
    left.wait()

    assert found[0] == f"process {left.pid} outlives the run"
    assert found[1].startswith(f"lease left: {gate.uuid(0)} is leased by pid {os.getpid()} ")
    assert [*drive._alive(mark, "no-run-of-that-name"), *drive._leased(gate)] == []
