"""Seeded faults against whole runs on simulated boxes: what was committed, what did not hold, and how long it took.

`python -m benchmarks.faults --seeds 200 --jobs 2 --twice` prints a line for each seed that fails, and a table of kinds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.faults.schedule import KINDS
from tests.boxes.box import stand_ins
from tests.faults.drive import Case, Tried, commit


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One seed, run once or twice."""

    seed: int
    runs: tuple[Tried, ...]

    @property
    def problems(self) -> list[str]:
        found = [words for run in self.runs for words in run.problems]
        # Where a run ends before its time depends on the clock; that it says so does not.
        whole = self.runs[0].case.expected.end is None
        if whole and len({repr(run.normal) for run in self.runs}) > 1:
            found.append("two runs of this seed have two verdicts")
        return found


def try_seed(seed: int, folder: Path, libraries: Path, *, times: int, mount: bool) -> Result:
    """Run a seed; what it leaves is kept if something does not hold."""
    case = Case.of(seed)
    places = [folder / f"{seed}-{number}" for number in range(times)]
    runs = tuple(commit(case, place, libraries, mount=mount) for place in places)
    result = Result(seed=seed, runs=runs)
    for place, run in zip(places, runs, strict=True):
        if result.problems:
            (place / "output.txt").write_text(run.output)
        else:
            shutil.rmtree(place)
    return result


def told(result: Result) -> Iterator[str]:
    """A seed's lines."""
    case = result.runs[0].case
    kinds = ", ".join(fault.kind for fault in case.schedule.faults) or "no fault"
    seconds = " ".join(f"{run.seconds:.1f}" for run in result.runs)
    state = "FAILS" if result.problems else "holds"
    yield f"{result.seed:4} {state} {len(case.suite.cards)} cards, {len(case.expected.fates)} cells, {seconds} s: {kinds}"
    yield from (f"       {words}" for words in result.problems)


def table(results: Sequence[Result]) -> Iterator[str]:
    """A line a kind: how many faults of it were committed, in how many schedules, and how many of these fail."""
    fired: Counter[str] = Counter()
    schedules: dict[str, list[bool]] = defaultdict(list)
    for result in results:
        faults = result.runs[0].case.schedule.faults
        kinds = [faults[number].kind for run in result.runs for number in run.observed.fired]
        fired.update(kinds)
        for kind in set(kinds) or {"no fault"}:
            schedules[kind].append(bool(result.problems))
    yield f"{'kind':28} {'faults':>7} {'schedules':>10} {'failing':>8}"
    for kind in ("no fault", *(f"{victim}:{act}" for victim, act in KINDS)):
        yield f"{kind:28} {fired[kind]:7} {len(schedules[kind]):10} {sum(schedules[kind]):8}"
    yield f"{'all':28} {fired.total():7} {len(results):10} {sum(bool(result.problems) for result in results):8}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Commit seeded faults in runs on simulated boxes")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--twice", action="store_true", help="Run each seed again, and compare the verdicts")
    words = parser.parse_args()
    folder, started = Path(tempfile.mkdtemp(prefix="faults-")), time.monotonic()
    libraries = stand_ins(folder / "stand-ins")
    results = []
    with ThreadPoolExecutor(words.jobs) as pool:
        seeds = range(words.first, words.first + words.seeds)
        times, mount = 1 + words.twice, os.geteuid() == 0
        waiting = [pool.submit(try_seed, seed, folder, libraries, times=times, mount=mount) for seed in seeds]
        for one in waiting:
            results.append(one.result())
            print(*told(results[-1]), sep="\n", flush=True)
    print(*table(results), sep="\n")
    print(f"{words.seeds} seeds, {time.monotonic() - started:.0f} s; what fails is kept in {folder}")
    return int(any(result.problems for result in results))


if __name__ == "__main__":
    sys.exit(main())
