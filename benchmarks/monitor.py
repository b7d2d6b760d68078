"""What it costs to watch the cards of this machine: CPU and wall time of one look, and of ten seconds of watching.

python benchmarks/monitor.py [looks]

A card under a test is looked at once a second, and once more before and after it. The watch is a thread of the
controller, so that no test shares an interpreter with it; what it takes of a card is what NVML takes to answer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import aer, nvml, pci
from pytest_cudaboot.probes.counters import Counters
from pytest_cudaboot.rules.hardware import load_policy
from pytest_cudaboot.run.monitor import Monitor

WATCHING = 10.0


def main(looks: int) -> None:
    root = nvml.simulated_root() or Path("/")
    gpus = nvml.look().gpus
    if not gpus:
        raise SystemExit("no card is here that NVML names")
    began = time.perf_counter()
    counters = Counters([gpu.uuid for gpu in gpus])
    print(f"cards {len(gpus)}, NVML's session {1000 * (time.perf_counter() - began):.0f} ms")
    for gpu in gpus:
        link = aer.link_of(pci.normalized(gpu.pci), root)
        walls, cpus, missing = [], [], frozenset[str]()
        for _ in range(looks):
            wall, cpu = time.perf_counter(), time.thread_time()
            missing = counters.read(gpu.uuid).missing
            aer.read(link)
            walls.append(1000 * (time.perf_counter() - wall))
            cpus.append(1000 * (time.thread_time() - cpu))
        print(
            f"{gpu.uuid} {gpu.name}: a look takes {median(cpus):.2f} ms of CPU, {median(walls):.2f} ms (worst {max(walls):.1f})"
        )
        print(
            f"  {median(walls) / 10:.3f} % of its time at one look a second; unanswered: {sorted(missing) or 'nothing'}"
        )
        print(f"  AER {'counts on ' + ', '.join(link.devices) if link.observable else 'is not counted here'}")
    counters.close()
    _watch(gpus, root)


def _watch(gpus: Sequence[Gpu], root: Path) -> None:
    """The whole of it, as in a run."""
    monitor = Monitor(gpus, load_policy(), root)
    cpu = time.process_time()
    monitor.begin("benchmark", [gpu.uuid for gpu in gpus])
    began = time.perf_counter()
    time.sleep(WATCHING)
    took = time.process_time() - cpu
    evidence, crossings = monitor.end("benchmark", failed=False)
    monitor.stop()
    lasted = time.perf_counter() - began
    print(
        f"watching: {1000 * took:.0f} ms of CPU in {lasted:.1f} s, {100 * took / lasted / len(gpus):.3f} % a card"
    )
    for uuid, facts in evidence.get("hardware", {}).items():
        print(f"  {uuid} {facts}")
    print(f"  against a card: {[crossing.alarm.words for crossing in crossings] or 'nothing'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
