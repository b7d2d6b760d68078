"""One seed: a box, a suite, a schedule; the run, and what it left behind."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fixtures.boxes import replay
from pytest_cudaboot.faults.check import Observed, normal, problems
from pytest_cudaboot.faults.expect import Expected, expect
from pytest_cudaboot.faults.plugin import MARKS
from pytest_cudaboot.faults.schedule import Act, Schedule, draw
from pytest_cudaboot.faults.suite import CONFTEST, Suite, make_suite
from pytest_cudaboot.model import RunRecord
from pytest_cudaboot.probes.lease import obstacles
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.ledger_lines import read_ledger
from pytest_cudaboot.rules.verdict import judge
from tests.boxes.box import BOXES, BoxGate
from tests.run.gate import Json

PLUGIN = "pytest_cudaboot.faults.plugin"
PATIENCE = 300.0  # seconds for a whole run: one that takes them hangs
SWEEP_SECONDS = 8.0  # what a sweeper allows itself, and some
MARK = "FAULTS_RUN"
DISK = "size=4m"
# Small boxes are cheap, and most people have one. There are as many as share no divisor with the number of kinds.
BOX_SIZES = (1, 2, 1, 3, 1, 2, 1, 4, 2, 1, 3, 1, 8, 1, 2, 1, 5, 1, 2, 6, 1, 3, 1, 7, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a seed means."""

    suite: Suite
    schedule: Schedule
    expected: Expected

    @classmethod
    def of(cls, seed: int) -> Case:
        box = replay.read(BOXES / "invented-eight.box")
        cards = [card.uuid for card in box.cards[: BOX_SIZES[seed % len(BOX_SIZES)]]]
        suite = make_suite(seed, cards)
        schedule = draw(seed, list(suite.targets()))
        return cls(suite=suite, schedule=schedule, expected=expect(suite, schedule))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A run of a case, and what does not hold of it."""

    case: Case
    observed: Observed
    problems: tuple[str, ...]
    normal: Json
    seconds: float
    output: str


def commit(case: Case, folder: Path, libraries: Path, *, mount: bool = False) -> Tried:
    """Run a case in an empty folder.

    :param mount: whether a file system may be mounted that can be filled; else the size of files is limited.
    """
    gate = _gate(case, folder, libraries)
    mark = uuid.uuid4().hex
    gate.env[MARK] = mark
    wanted = mount and any(fault.act is Act.FULL_DISK for fault in case.schedule.faults)
    started = time.monotonic()
    with _disk(gate.out) if wanted else _no_disk():
        done = _run(gate)
        seconds = time.monotonic() - started
        observed = _observe(gate, done, mark)
        found = problems(case.expected, observed)
    return Tried(
        case=case,
        observed=observed,
        problems=tuple(found),
        normal=normal(observed.verdict),
        seconds=seconds,
        output=done.stdout + done.stderr,
    )


def _gate(case: Case, folder: Path, libraries: Path) -> BoxGate:
    box = replay.read(BOXES / "invented-eight.box")
    kept = tuple(card for card in box.cards if card.uuid in case.suite.cards)
    folder.mkdir(exist_ok=True)
    gate = BoxGate(folder, libraries).on(replace(box, cards=kept))
    gate.suite(case.suite.tests(), case.suite.catalog(case.schedule))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "schedule.json").write_text(case.schedule.dumps())
    return gate


def _run(gate: BoxGate) -> subprocess.CompletedProcess[str]:
    argv = gate.argv("-p", PLUGIN, "--faults", "schedule.json", gpus="all")
    try:
        return subprocess.run(
            argv, cwd=gate.path, env=gate.env, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired as late:
        said = [text.decode() if isinstance(text, bytes) else "" for text in (late.stdout, late.stderr)]
        return subprocess.CompletedProcess(argv, 124, *said)


def _observe(gate: BoxGate, done: subprocess.CompletedProcess[str], mark: str) -> Observed:
    text = (gate.out / "ledger.jsonl").read_text().splitlines()
    records, catalog = read_ledger(text), load_catalog(gate.path / "catalog.toml")
    earnest = [replace(one, simulated=False) if isinstance(one, RunRecord) else one for one in records]
    verdict = gate.verdict
    return Observed(
        returncode=done.returncode,
        verdict=verdict,
        replayed=judge(catalog, records),
        earnest=judge(catalog, earnest),
        ledger=tuple(_lines(text)),
        fired=frozenset(int(path.name.rpartition("-")[2]) for path in (gate.out / MARKS).glob("*-*")),
        left=(*_alive(mark, verdict["run"]), *_leased(gate)),
    )


def _lines(text: Sequence[str]) -> Iterator[Json]:
    """The ledger's lines; the last may be half a line, where there was no room for it."""
    for number, line in enumerate(text, start=1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            assert number == len(text), f"line {number} of {len(text)} is torn"


def _alive(mark: str, run: str) -> Iterator[str]:
    """Processes of the run that outlive it: by what they inherited, and the sweeper by its only word."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while (found := _marked(mark.encode(), run.encode())) and time.monotonic() < deadline:
        time.sleep(0.05)
    yield from (f"process {pid} outlives the run" for pid in found)


def _marked(mark: bytes, run: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            ours = entry.name.isdecimal() and (
                mark in (entry / "environ").read_bytes() or run in (entry / "cmdline").read_bytes()
            )
        except OSError:  # gone between the two looks, or somebody else's
            continue
        found += [int(entry.name)] if ours else []
    return found


def _leased(gate: BoxGate) -> Iterator[str]:
    folder = Path(gate.env["CUDABOOT_LEASE_DIR"])
    yield from (f"lease left: {obstacle}" for obstacle in obstacles(gate.uuids, folder=folder))


@contextmanager
def _disk(out: Path) -> Iterator[None]:
    out.mkdir()
    subprocess.run(["/usr/bin/env", "mount", "-t", "tmpfs", "-o", DISK, "none", out], check=True)
    try:
        yield
    finally:
        subprocess.run(["/usr/bin/env", "umount", out], check=True)


@contextmanager
def _no_disk() -> Iterator[None]:
    yield
