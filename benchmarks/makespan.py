"""How close a run comes to the shortest that is possible: `python -m benchmarks.makespan [--seeds N] [--cards N …] [--real]`.

On a virtual clock, by the very policy that the scheduler runs, over the instances that `instances` describes. Each
row has the makespan over the simple bound, max(longest job, critical path, card-seconds / cards), and over the closest
bound that `proofs` finds for each instance: some can not reach the simple one. `factor 2` means that the policy is
told durations that are wrong by up to a factor of two either way, `unknown` that it is told the same of each job.
With `--real`, runs of four simulated cards, whose tests sleep, beside plain pytest-xdist.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks import real_run
from benchmarks.instances import invented, lanes_of, recorded, small
from benchmarks.optimum import shortest
from benchmarks.proofs import closer_bound
from benchmarks.virtual_clock import play
from pytest_cudaboot.rules.order import bound
from pytest_cudaboot.rules.timetable import Job

AIM = 1.05
UNKNOWN = 12.0  # seconds, a tenth of the usual budget
Family = Callable[[int, int], list[Job]]
Belief = Callable[[Sequence[Job], random.Random], list[Job]]
FAMILIES: dict[str, Family] = {"recorded": recorded, "invented": invented}


def exact(jobs: Sequence[Job], _dice: random.Random) -> list[Job]:
    return list(jobs)


def wrong(jobs: Sequence[Job], dice: random.Random) -> list[Job]:
    return [replace(job, seconds=job.seconds * 2 ** dice.uniform(-1, 1)) for job in jobs]


def unknown(jobs: Sequence[Job], _dice: random.Random) -> list[Job]:
    return [replace(job, seconds=UNKNOWN) for job in jobs]


BELIEFS: dict[str, Belief] = {"exact": exact, "factor 2": wrong, "unknown": unknown}


def virtual(family: str, cards: int, belief: str, seeds: int) -> None:
    """Print one row."""
    simple, close, spent = [], [], time.process_time()
    for seed in range(seeds):
        jobs, lanes = FAMILIES[family](cards, seed), lanes_of(cards)
        told = BELIEFS[belief](jobs, random.Random(seed))
        makespan = play(jobs, lanes, told).makespan
        simple.append(makespan / bound(jobs, cards))
        close.append(makespan / closer_bound(jobs, lanes))
    over = sum(ratio > AIM for ratio in simple)
    spent = (time.process_time() - spent) / seeds
    print(
        f"{family:9} {belief:9} {cards:3} {seeds:6}   {max(simple):.3f}  {median(simple):.3f}   {over:3} of {seeds:3}   "
        f"{max(close):.3f}  {median(close):.3f}   {spent:6.1f} s",
        flush=True,
    )


def small_ones(seeds: int) -> None:
    equal = sum(play(*small(seed)).makespan <= shortest(*small(seed)) + 1e-6 for seed in range(seeds))
    print(f"small instances: {equal} of {seeds} as short as any schedule", flush=True)


def real() -> None:
    """Two sets on four simulated cards."""
    with tempfile.TemporaryDirectory() as name:
        place = real_run.Place(Path(name))
        for title, specs in (("simple", real_run.simple()), ("gangs and needs", real_run.whole())):
            bound_ = real_run.least(specs)
            new, known = place.ours(specs)
            plain = f"; plain pytest-xdist {place.plain(specs):.2f} s" if len(specs) == 1 else ""
            print(
                f"four simulated cards, {title}: bound {bound_:.2f} s; first run {new:.2f} s ({new / bound_:.3f}), "
                f"second {known:.2f} s ({known / bound_:.3f}){plain}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Makespans against what is possible")
    parser.add_argument("--seeds", type=int, default=20, help="Instances of each kind")
    parser.add_argument("--cards", type=int, nargs="*", default=[4, 8, 64], help="Sizes of the box")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--beliefs", nargs="*", default=list(BELIEFS), choices=BELIEFS)
    parser.add_argument(
        "--small", type=int, default=60, help="Small instances that are compared with the optimum"
    )
    parser.add_argument("--real", action="store_true", help="Run real workers on simulated cards as well")
    asked = parser.parse_args()
    print("family    durations cards seeds  over the bound  beyond 1.05  over what is proved  CPU each")
    print("                                 worst  median               worst  median")
    for belief in asked.beliefs:
        for family in asked.families:
            for cards in asked.cards:
                virtual(family, cards, belief, asked.seeds)
    if asked.small:
        small_ones(asked.small)
    if asked.real:
        real()


if __name__ == "__main__":
    main()
