"""From a process's start to its first step: where the seconds go, with and without autotuning.

    python benchmarks/startup.py PLUGIN [--nets linear,mlp,cnn] [--runs 3]

Each line is the median over fresh processes: the interpreter and its imports, the plugin's load and the client, the
compile of the train step, its first run and its second. What autotuning costs is the compile with it less the compile
without it. A serialised executable would spare the compile; the gate never uses one, since nothing checks its bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_cudaboot.lowerers.base import LowererConfig, make_lowerer
from pytest_cudaboot.lowerers.build import build_shim
from pytest_cudaboot.probes.process import run_command
from pytest_cudaboot.project import find_project
from pytest_cudaboot.run.fixtures import builds
from pytest_cudaboot.run.nets import load_net

PHASES = ("imports", "plugin and client", "compile", "first run", "second run")
WITHOUT_AUTOTUNING = "--xla_gpu_autotune_level=0"
BUDGET = 300.0  # seconds for one process
SEED = 1


def child(shim: str, net: str) -> None:
    """One process: print the seconds of each phase."""
    marks = [float(os.environ["STARTED"]), time.time()]
    lowerer = make_lowerer(LowererConfig(name="xla", platform="", shim=shim))
    lowerer.facts()  # to describe the client makes it
    marks.append(time.time())
    graph = load_net(find_project("reference", Path.cwd()), net).step
    inputs = graph.inputs(SEED)
    prepared = time.time()
    session = lowerer.open_session(graph.path)
    compiled = time.time()
    session.invoke(graph.entry, inputs)
    first = time.time()
    session.invoke(graph.entry, inputs)
    second = time.time()
    spans = [marks[1] - marks[0], marks[2] - marks[1], compiled - prepared, first - compiled, second - first]
    sys.stdout.write(json.dumps(dict(zip(PHASES, spans, strict=True))))
    session.close()
    sys.stdout.flush()
    os._exit(0)  # a plugin's destructors are no part of this


def measure(shim: Path, plugin: Path, net: str, runs: int, flags: str) -> dict[str, float]:
    """The median of each phase, seconds."""
    seen = []
    for _ in range(runs):
        env = {**os.environ, "PJRT_PLUGIN": str(plugin), "XLA_FLAGS": flags, "STARTED": str(time.time())}
        argv = [sys.executable, __file__, "--child", str(shim), net]
        seen.append(json.loads(run_command(argv, cwd=Path.cwd(), env=env, budget=BUDGET).stdout))
    return {phase: statistics.median(one[phase] for one in seen) for phase in PHASES}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Where the seconds to the first step go")
    parser.add_argument("plugin", type=Path, metavar="PLUGIN", help="A PJRT plugin's file")
    parser.add_argument(
        "--nets", default="linear,mlp,cnn", metavar="LIST", help="Nets of the reference project"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="Fresh processes for each line")
    options = parser.parse_args(argv)
    shim = build_shim(find_project("reference", Path.cwd()).path, builds(), env=os.environ)
    write = sys.stdout.write
    write(f"{'net':8} {'autotuning':11}" + "".join(f"{phase:>19}" for phase in PHASES) + f"{'all':>9}\n")
    for net in options.nets.split(","):
        for name, flags in (("on", ""), ("off", WITHOUT_AUTOTUNING)):
            spans = measure(shim, options.plugin, net, options.runs, flags)
            cells = "".join(f"{spans[phase]:17.3f} s" for phase in PHASES)
            write(f"{net:8} {name:11}{cells}{sum(spans.values()):7.2f} s\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:4])
    else:
        main()
