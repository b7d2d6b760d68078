"""How close a run comes to the shortest that is possible: `python benchmarks/makespan.py [--seeds N] [--real]`.

On a virtual clock, by the very policy that the scheduler runs: for 4, 8 and 64 cards, against the bound max(longest
job, critical path, card-seconds / cards). With `--real`, one run of four simulated cards, whose items sleep.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from statistics import median

from benchmarks.proofs import closer_bound
from benchmarks.virtual_clock import heavy_tailed, lanes_of, play
from fixtures.boxes import replay
from pytest_cudaboot.rules.order import bound
from pytest_cudaboot.rules.timetable import CARD, Job, Lane, Timetable

ROOT = Path(__file__).resolve().parents[1]
SLEEPERS = """
import time, pytest
TIMES = {times}
@pytest.mark.spec("a.sleep")
@pytest.mark.parametrize("seconds", TIMES, ids=range(len(TIMES)))
def test_sleep(seconds, gpu, measure):
    time.sleep(seconds)
    measure(slept=seconds)
"""
PLAIN = (
    SLEEPERS.replace(", gpu, measure", "")
    .replace("    measure(slept=seconds)\n", "")
    .replace('@pytest.mark.spec("a.sleep")\n', "")
)
CATALOG = '[a.sleep]\nkind = "step"\ntitle = "T"\nheading = "H"\non = "any"\nwhen = ["gpu"]\n'


def small(seed: int) -> tuple[list[Job], list[Lane]]:
    """Six jobs on two or three cards, a gang and a chain among them, in whole seconds."""
    dice = random.Random(seed)
    jobs = [Job(lane=CARD, seconds=float(dice.randint(1, 12))) for _ in range(3)]
    jobs.append(Job(lane=CARD, seconds=float(dice.randint(1, 9)), cards=2))
    jobs.append(Job(lane=CARD, seconds=float(dice.randint(1, 9)), after=frozenset({dice.randrange(3)})))
    jobs.append(Job(lane=f"GPU-{dice.randrange(2)}", seconds=float(dice.randint(1, 9)), after=frozenset({4})))
    return jobs, lanes_of(dice.choice((2, 3)), hosts=1)


def optimum(jobs: Sequence[Job], lanes: Sequence[Lane]) -> float:
    """The best of all orders; laid out as early as they can be, they contain the best schedule that there is."""
    orders = permutations(range(len(jobs)))
    return min(Timetable(jobs, lanes, range(len(jobs)), {}).fill(order).end for order in orders)


def virtual(cards: int, seeds: int) -> Iterator[tuple[float, float]]:
    """For each instance the makespan over the bound, and over the closest bound that is proved for it.

    What is bound to the card of a long job makes the bound itself out of reach for any schedule.
    """
    for seed in range(seeds):
        jobs, lanes = heavy_tailed(cards, seed), lanes_of(cards)
        makespan = play(jobs, lanes).makespan
        yield makespan / bound(jobs, cards), makespan / closer_bound(jobs, lanes)


def real(folder: Path, times: Sequence[float]) -> tuple[float, float]:
    """Seconds of a run of ours on four cards, from the first item to the last, and of plain pytest-xdist, whole."""
    libraries = replay.build(folder / "libraries")
    plugin = libraries / "tiny_plugin.so"
    source = ROOT / "tests" / "run" / "tiny_cuda.c"
    subprocess.run(["/usr/bin/env", "gcc", "-fPIC", "-shared", source, "-o", plugin], check=True)
    box = replay.read(ROOT / "fixtures" / "boxes" / "invented-eight.box")
    here = {"PYTHONPATH": str(ROOT), "CUDABOOT_LEASE_DIR": str(folder / "leases"), "PJRT_PLUGIN": str(plugin)}
    env = {
        **os.environ,
        **here,
        **replay.lay_out(box, folder / "box", libraries),
        "XDG_CACHE_HOME": str(folder),
    }
    took = []
    for name, text, words in (
        ("ours", SLEEPERS, ["--gpus", "0-3"]),
        ("plain", PLAIN, ["-p", "no:cudaboot", "-n", "4", "--dist", "load"]),
    ):
        suite = folder / name
        suite.mkdir()
        (suite / "pytest.ini").write_text("[pytest]\n")
        (suite / "test_sleep.py").write_text(text.format(times=list(times)))
        if name == "ours":
            (suite / "catalog.toml").write_text(CATALOG)
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "."]
        elapsed = 0.0
        for _ in range(2):  # the first run learns the durations
            started = time.monotonic()
            subprocess.run(argv, cwd=suite, env=env, check=False, stdout=subprocess.DEVNULL)
            elapsed = time.monotonic() - started
        took.append(elapsed)
    return took[0], took[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--real", action="store_true")
    asked = parser.parse_args()
    for cards, seeds in ((4, asked.seeds), (8, asked.seeds), (64, max(1, asked.seeds // 10))):
        simple, close = zip(*virtual(cards, seeds), strict=True)
        print(
            f"{cards:3} cards, {seeds} instances: makespan / bound worst {max(simple):.3f}, median {median(simple):.3f}; "
            f"over what is proved for each: worst {max(close):.3f}, median {median(close):.3f}"
        )
    equal = [(play(*small(seed)).makespan, optimum(*small(seed))) for seed in range(asked.seeds)]
    print(
        f"small instances: {sum(ours <= best + 1e-6 for ours, best in equal)} of {len(equal)} at the optimum"
    )
    if asked.real:
        dice = random.Random(0)
        times = [round(min(8.0, dice.lognormvariate(0.0, 0.8)), 2) for _ in range(40)]
        least = max(*times, sum(times) / 4)
        with tempfile.TemporaryDirectory() as name:
            ours, plain = real(Path(name), times)
        print(
            f"four simulated cards: bound {least:.1f} s, ours {ours:.1f} s, plain pytest -n 4 {plain:.1f} s"
        )


if __name__ == "__main__":
    main()
