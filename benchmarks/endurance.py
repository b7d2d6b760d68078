"""Thousands of steps through the XLA shim: does the process, or what it holds of its card, grow?

    python benchmarks/endurance.py PLUGIN [--net mlp] [--steps 10000]

Three ways of training, one after another in one process: arrays of the host in and out, parameters resident with a
sync each step, and eight steps in flight. As many steps go before, for caches and allocators to settle. After each
tenth it prints resident pages of the process and bytes in use on the cards that NVML shows. It ends with 1 if over the
steps that count the process has grown by more than a megabyte, or a card's use at all.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_cudaboot.lowerers.base import Array, LowererConfig, make_lowerer
from pytest_cudaboot.lowerers.build import build_shim
from pytest_cudaboot.lowerers.xla import HOLD, SEND, Loop, XlaSession
from pytest_cudaboot.probes import maps, nvml
from pytest_cudaboot.project import find_project
from pytest_cudaboot.run.fixtures import builds
from pytest_cudaboot.run.nets import Graph, load_net

GROWTH = 1 << 20  # bytes of the process, over the steps that count
IN_FLIGHT = 8
SEED = 3
Step = Callable[[int], None]


def copying(session: XlaSession, graph: Graph) -> Step:
    """Everything from the host and back, each step."""
    arrays = list(graph.inputs(SEED))

    def step(_number: int) -> None:
        made = session.invoke(graph.entry, arrays)
        for output, into in graph.updates.items():
            arrays[into] = made[output]

    return step


def looping(session: XlaSession, graph: Graph, in_flight: int) -> Step:
    """Parameters stay on the device; the batch is sent, the rate is held, the loss is read."""
    arrays: list[Array] = list(graph.inputs(SEED))
    into = {place: output for output, place in graph.updates.items()}
    roles = [into.get(place, HOLD if place == graph.rate else SEND) for place in range(len(arrays))]
    loop = Loop(roles=tuple(roles), in_flight=in_flight, late=in_flight > 0)
    kept = [place for place, role in enumerate(roles) if role != SEND]
    loss = len(session.signature.outputs) - 1

    def step(number: int) -> None:
        session.step(graph.entry, arrays, loop, on_device=kept if number else (), read=[loss])

    return step


def use() -> tuple[int, dict[str, int]]:
    """Resident bytes of this process, and bytes in use on each card, whoever uses them."""
    cards = {gpu.uuid: nvml.memory_used(gpu.uuid) for gpu in nvml.look().gpus}
    return maps.resident_bytes()[0], {uuid: used for uuid, used in cards.items() if used is not None}


def endure(name: str, step: Step, steps: int) -> bool:
    """Whether it has grown; prints what is in use before, and after each tenth."""
    for number in range(steps):
        step(number)
    seen = [use()]
    for number in range(steps, 2 * steps):
        step(number)
        if (number + 1) % (steps // 10) == 0:
            seen.append(use())
    grown = seen[-1][0] - seen[0][0]
    device = {uuid: seen[-1][1][uuid] - used for uuid, used in seen[0][1].items()}
    tenths = " ".join(f"{host / 2**20:.1f}" for host, _ in seen)
    sys.stdout.write(
        f"{name}: process MiB {tenths}; grown by {grown} bytes, cards by {device or 'unobservable'}\n"
    )
    return grown > GROWTH or any(more > 0 for more in device.values())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Does anything grow over thousands of steps?")
    parser.add_argument("plugin", type=Path, metavar="PLUGIN", help="A PJRT plugin's file")
    parser.add_argument("--net", default="mlp", metavar="NET", help="A net of the reference project")
    parser.add_argument(
        "--steps", type=int, default=10_000, metavar="N", help="Steps of each way, after as many more"
    )
    options = parser.parse_args(argv)
    project = find_project("reference", Path.cwd())
    os.environ["PJRT_PLUGIN"] = str(options.plugin)
    shim = build_shim(project.path, builds(), env=os.environ)
    lowerer = make_lowerer(LowererConfig(name="xla", platform="", shim=str(shim)))
    graph = load_net(project, options.net).step
    ways: dict[str, Callable[[XlaSession], Step]] = {
        "host arrays": lambda session: copying(session, graph),
        "resident": lambda session: looping(session, graph, 0),
        "in flight": lambda session: looping(session, graph, IN_FLIGHT),
    }
    grown = []
    for name, way in ways.items():
        session = lowerer.open_session(graph.path)
        assert isinstance(session, XlaSession)  # noqa: S101 - it is what an XLA lowerer opens
        grown.append(endure(name, way(session), options.steps))
        session.close()
    sys.stdout.flush()
    os._exit(int(any(grown)))  # a plugin's destructors are no part of this


if __name__ == "__main__":
    sys.exit(main())
