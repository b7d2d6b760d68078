"""What the device process costs each spec beside the spec's own work: warm reuse, the probe, and a cold start.

PYTHONPATH=. python benchmarks/isolation.py [ROUNDS]

`spec` is what every spec pays: it gets the warm process, makes one call, and is probed before and after its fixtures'
end. `retire` and `start` are paid when the lowerer changes or a process was broken.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.run.devices import Devices
from pytest_cudaboot.run.evidence import Evidence

BUDGET_MS = 150.0
ROUNDS = 20
LOWERER = """
class Lowerer:
    def __init__(self, config):
        pass

    def facts(self):
        return {"describe": {"platform": "cpu"}, "mapped": {}}

    def close(self):
        pass
"""


def evidence() -> Evidence:
    made = Evidence(deadline=0.0)
    made.allow(60.0)
    return made


class Bench:
    """A worker's devices with a lowerer that does nothing."""

    def __init__(self, folder: Path) -> None:
        (folder / "nothing.py").write_text(LOWERER)
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
        self.devices = Devices(environ, None, folder / "logs", "bench")
        self.config = LowererConfig(name="xla", platform="cpu", shim="", implementation="nothing:Lowerer")

    def start(self) -> None:
        self.devices.open(self.config, evidence())

    def retire(self) -> None:
        self.devices.retire()

    def spec(self) -> None:
        recorder = evidence()
        self.devices.open(self.config, recorder).mapped()
        for _ in range(2):
            self.devices.settle(recorder)

    def probe(self) -> None:
        self.devices.open(self.config, evidence()).call("health")


def timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - started)


def show(name: str, figures: list[float]) -> None:
    ordered = sorted(figures)
    p90 = ordered[int(0.9 * (len(ordered) - 1))]
    sys.stdout.write(
        f"{name:>8}  min {ordered[0]:8.2f}  median {statistics.median(ordered):8.2f}  "
        f"p90 {p90:8.2f}  max {ordered[-1]:8.2f} ms\n"
    )


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        table: dict[str, list[float]] = {"start": [], "retire": []}
        for _ in range(rounds):
            table["start"].append(timed(bench.start))
            table["retire"].append(timed(bench.retire))
        bench.start()
        for name in ("spec", "probe"):
            table[name] = [timed(getattr(bench, name)) for _ in range(10 * rounds)]
        bench.devices.leave()
    for name, figures in table.items():
        show(name, figures)
    median = statistics.median(table["spec"])
    sys.stdout.write(f"isolation costs {median:.2f} ms a spec at the median; allowed are {BUDGET_MS:g}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
