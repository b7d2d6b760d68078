"""How close a run comes to the shortest that is possible: `python -m benchmarks.makespan [--seeds N] [--cards N …] [--real N]`.

On a virtual clock, by the very policy that the scheduler runs, over the instances that `instances` describes. Each
row has the makespan over the simple bound, max(longest job, critical path, card-seconds / cards), and over the closest
bound that `proofs` finds for each instance: some can not reach the simple one. What is `hard` is held to the latter,
everything else to the former. The last columns are the CPU seconds of the first plan, and the longest that a decision
after it took. `factor 2` means that the policy is
told durations that are wrong by up to a factor of two either way, `unknown` that it is told the same of each job.
With `--real 3`, so many runs of four simulated cards, whose tests sleep, beside plain pytest-xdist.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks import real_run
from benchmarks.instances import grown, hard, lanes_of, recorded, small
from benchmarks.optimum import shortest
from benchmarks.proofs import closer_bound
from benchmarks.virtual_clock import play
from pytest_cudaboot.rules.order import bound
from pytest_cudaboot.rules.timetable import Job

AIM = 1.05
UNKNOWN = 12.0  # seconds, a tenth of the usual budget
Family = Callable[[int, int], list[Job]]
Belief = Callable[[Sequence[Job], random.Random], list[Job]]
FAMILIES: dict[str, Family] = {"recorded": recorded, "grown": grown, "hard": hard}


def exact(jobs: Sequence[Job], _dice: random.Random) -> list[Job]:
    return list(jobs)


def wrong(jobs: Sequence[Job], dice: random.Random) -> list[Job]:
    return [replace(job, seconds=job.seconds * 2 ** dice.uniform(-1, 1)) for job in jobs]


def unknown(jobs: Sequence[Job], _dice: random.Random) -> list[Job]:
    return [replace(job, seconds=UNKNOWN) for job in jobs]


BELIEFS: dict[str, Belief] = {"exact": exact, "factor 2": wrong, "unknown": unknown}


def virtual(family: str, cards: int, belief: str, seeds: int) -> None:
    """Print one row."""
    simple, close, planned, decided = [], [], [], []
    for seed in range(seeds):
        jobs, lanes = FAMILIES[family](cards, seed), lanes_of(cards)
        played = play(jobs, lanes, BELIEFS[belief](jobs, random.Random(seed)))
        simple.append(played.makespan / bound(jobs, cards))
        close.append(played.makespan / closer_bound(jobs, lanes))
        planned.append(played.planning)
        decided.append(played.deciding)
    over = sum(ratio > AIM for ratio in (close if family == "hard" else simple))
    print(
        f"{family:9} {belief:9} {cards:3} {seeds:6}   {max(simple):.3f}  {median(simple):.3f}   {over:3} of {seeds:3}   "
        f"{max(close):.3f}  {median(close):.3f}   {median(planned):5.2f} {max(planned):5.2f} s"
        f"  {median(decided) * 1000:5.1f} {max(decided) * 1000:6.1f} ms",
        flush=True,
    )


def small_ones(seeds: range) -> None:
    equal = sum(play(*small(seed)).makespan <= shortest(*small(seed)) + 1e-6 for seed in seeds)
    print(
        f"small instances from {seeds.start} on: {equal} of {len(seeds)} as short as any schedule", flush=True
    )


def real(times: int) -> None:
    """Two sets on four simulated cards, over and over, and plain pytest-xdist in turn with the one that it can run."""
    with tempfile.TemporaryDirectory() as name:
        place = real_run.Place(Path(name))
        for title, specs in (("simple", real_run.simple()), ("gangs and needs", real_run.whole())):
            bound_ = real_run.least(specs)
            print(f"four simulated cards, {title}: bound {bound_:.2f} s, {_load()}", flush=True)
            _ratios("a run that knows no durations", [place.ours(specs)], bound_)
            ours, plain = [], []
            for _ in range(times):
                ours.append(place.ours(specs))
                if len(specs) == 1:
                    plain.append(place.plain(specs))
            _ratios("runs after it", ours, bound_)
            if plain:
                _ratios("plain pytest-xdist, in turn", plain, bound_)


def _ratios(title: str, seconds: Sequence[float], bound_: float) -> None:
    each = " ".join(f"{one:.2f}" for one in seconds)
    print(f"  {title}: {each} s; median {median(seconds):.2f} s ({median(seconds) / bound_:.3f})", flush=True)


def _load() -> str:
    return "load average " + " ".join(f"{number:.2f}" for number in os.getloadavg())


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makespans against what is possible")
    parser.add_argument("--seeds", type=int, default=20, help="Instances of each kind")
    parser.add_argument("--cards", type=int, nargs="*", default=[4, 8, 64], help="Sizes of the box")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--beliefs", nargs="*", default=list(BELIEFS), choices=BELIEFS)
    parser.add_argument(
        "--small", type=int, default=60, help="Small instances that are compared with the optimum"
    )
    parser.add_argument("--small-from", type=int, default=0, help="The first of them")
    parser.add_argument(
        "--real", type=int, default=0, metavar="N", help="Real runs of each set on simulated cards"
    )
    return parser.parse_args()


def main(asked: argparse.Namespace) -> None:
    print(f"{os.cpu_count()} processors, {_load()}")
    print(
        "family    durations cards seeds  over the bound  beyond 1.05  over what is proved  plan         decision"
    )
    print(
        "                                 worst  median               worst  median      median  worst  median worst"
    )
    for belief in asked.beliefs:
        for family in asked.families:
            for cards in asked.cards:
                virtual(family, cards, belief, asked.seeds)
    if asked.small:
        small_ones(range(asked.small_from, asked.small_from + asked.small))
    if asked.real:
        real(asked.real)


if __name__ == "__main__":
    main(_parsed())
