"""The graphs of a checkout for which it brings no oracle. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import (
    CompileError,
    DeviceError,
    NumericError,
    ShimError,
    SignatureError,
    ToolMissingError,
)
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.compiler import Compiler
from pytest_cudaboot.probes.store import ModuleStore
from pytest_cudaboot.probes.toolchain import find_cpu_plugin, package_folders
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import choose_target
from pytest_cudaboot.rules.seeded import judge
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.rules.signature import artifact_fault, read_signature
from pytest_cudaboot.rules.tolerances import load_tolerances
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.nets import Graph, artifact_graph
from pytest_cudaboot.run.worker import WORKER, Worker

SEED = 51
FAULTS = (ShimError, CompileError, DeviceError, NumericError, SignatureError)
RESERVE = 10.0  # seconds that are kept for the report
GUESS = 2.0  # a larger graph takes in proportion to its text, or up to so many times that


@dataclass(slots=True)
class Walk:
    """A walk over graphs, the smallest first, for as long as the budget lasts.

    :param left: those that there was no time for.
    """

    evidence: Evidence
    root: Path
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    rate: float = 0.0

    def over(self, paths: Sequence[Path], work: Callable[[Path], None]) -> None:
        """Do some work with each; one that fails does not keep the others from it."""
        for path in paths:
            name, size = os.path.relpath(path, self.root), max(path.stat().st_size, 1)
            if self.left or self.evidence.left < RESERVE + GUESS * self.rate * size:
                self.left.append(name)
                continue
            started = time.monotonic()
            try:
                work(path)
                self.done.append(name)
            except FAULTS as error:
                self.failed[name] = f"{type(error).__name__}: {error}"
            self.rate = max(self.rate, (time.monotonic() - started) / size)

    def conclude(self, verb: str) -> None:
        """Say what became of each."""
        self.evidence.measure(**{verb: len(self.done), "failed": len(self.failed), "left": len(self.left)})
        self.evidence.note(**{f"failed_{verb}": self.failed, "out_of_time": self.left})
        assert not self.failed, "; ".join(f"{name}: {why}" for name, why in self.failed.items())
        assert self.done, f"none of {len(self.left)} graphs within the budget"


@pytest.fixture
def graphs(project: Project) -> list[Path]:
    """The graphs that keep the artifact rules, the smallest first; `artifacts.rules` tells of the others."""
    return [path for path in project.unproved if artifact_fault(path) is None]


@pytest.mark.spec("artifacts.rules")
def test_every_graph_is_a_text_of_the_checkout(project: Project, evidence: Evidence) -> None:
    faults = {os.path.relpath(path, project.path): artifact_fault(path) for path in project.unproved}
    others = {name: why for name, why in faults.items() if why is not None}

    evidence.measure(graphs=len(faults), artifacts=len(faults) - len(others))
    evidence.note(other_than_artifacts=others, refused=dict(project.survey.refused))
    # Another kind of module has its use, which is not to be given to a shim. What can not be read has none.
    unreadable = [why for why in others.values() if "is not StableHLO text" in why]
    assert project.survey.refused == ()
    assert unreadable == []
    assert len(others) < len(faults), "no graph keeps the artifact rules"


@pytest.mark.spec("artifacts.compiles")
def test_every_artifact_compiles(
    lowerer: LowererHandle,
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
    graphs: list[Path],
    project: Project,
    evidence: Evidence,
) -> None:
    walk = Walk(evidence, project.path)

    def compile_one(path: Path) -> None:
        handle = lowerer if lowerer.alive else open_lowerer(lowerer.name)
        load(handle, path).close()

    walk.over(graphs, compile_one)

    walk.conclude("compiled")


# > refuse an input whose number,
# > shape or element type is not the one in its signature.
@pytest.mark.spec("artifacts.runs")
def test_one_step_of_every_artifact_is_what_a_cpu_makes_of_it(
    lowerer: LowererHandle,
    run_here: Callable[[Graph, list[Any]], list[Any]],
    peer: Peer,
    graphs: list[Path],
    project: Project,
    evidence: Evidence,
) -> None:
    walk, alone, errors = Walk(evidence, project.path), {}, {}

    def run_one(path: Path) -> None:
        graph = artifact_graph(path)
        inputs = graph.inputs(SEED)
        made = run_here(graph, inputs)
        try:
            wanted = peer.run(graph, inputs)
        except FAULTS as error:
            alone[graph.entry] = str(error)
            return
        judged = judge_outputs(graph, inputs, made, wanted, lowerer.platform).require()
        errors[graph.entry] = {"median": judged.comparison.median, "moved": judged.moved}

    walk.over(graphs, run_one)

    evidence.note(compared_with=peer.name, errors=errors, not_compared=alone)
    walk.conclude("run")
    assert errors, f"nothing could be compared: {alone}"


@pytest.mark.spec("artifacts.runs")
def test_an_output_that_is_off_would_be_seen(
    run_here: Callable[[Graph, list[Any]], list[Any]], graphs: list[Path]
) -> None:
    graph = artifact_graph(graphs[0])
    inputs = graph.inputs(SEED)
    made = run_here(graph, inputs)

    judge_outputs(graph, inputs, made, made, "cuda").require()
    for wrong in ([array * 2 + 1 for array in made], [np.full_like(array, np.nan) for array in made]):
        with pytest.raises(NumericError, match="outputs differ"):
            judge_outputs(graph, inputs, wrong, made, "cuda").require()


def judge_outputs(graph: Graph, inputs: list[Any], made: list[Any], wanted: list[Any], platform: str) -> Any:
    """The two, within the bound for the graph's hardest operation."""
    signature = read_signature(graph.path.read_text(encoding="utf-8"))
    tolerance = load_tolerances().of(graph.family, platform)
    return judge(made, wanted, signature=signature, inputs=inputs, tolerance=tolerance)


@pytest.fixture
def run_here(
    lowerer: LowererHandle,
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
) -> Callable[[Graph, list[Any]], list[Any]]:
    """A function that runs a graph once, on this worker's device."""

    def run_one(graph: Graph, inputs: list[Any]) -> list[Any]:
        handle = lowerer if lowerer.alive else open_lowerer(lowerer.name)
        opened = load(handle, graph.path)
        made = opened.invoke(inputs)
        opened.close()
        return made

    return run_one


@dataclass(frozen=True, slots=True)
class Peer:
    """What a graph's outputs are held to, by name."""

    name: str
    run: Callable[[Graph, list[Any]], list[Any]]


@pytest.fixture
def peer(
    lowerer: LowererHandle,
    run_here: Callable[[Graph, list[Any]], list[Any]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    evidence: Evidence,
) -> Iterator[Peer]:
    """XLA on the CPU; where that is what is judged, IREE on the CPU; where there is neither, the same once more."""
    worker: Worker = request.config.stash[WORKER]
    own = lowerer.name if lowerer.platform == "cpu" else None
    found = None if own == "xla" else xla_on_cpu(request, worker)
    found = found or (None if own == "iree" else iree_on_cpu(request, worker))
    if found is None:
        yield Peer(f"{lowerer.name} once more", run_here)
        return
    env = {**pin_environment(worker.environ, ()), **found.config.environment}
    with DeviceProcess(env=env, log_path=tmp_path / "peer.log") as process:
        process.call("open", budget=evidence.left, config=to_json(found.config))
        yield Peer(f"{found.config.name} on the CPU", lambda *given: found.run(process, evidence, *given))


@dataclass(frozen=True, slots=True)
class OnCpu:
    """A lowerer in a process that sees no card.

    :param modules: compiles for it, where it takes compiled modules.
    """

    config: LowererConfig
    modules: Modules | None = None

    def run(self, process: DeviceProcess, evidence: Evidence, graph: Graph, inputs: list[Any]) -> list[Any]:
        """Run a graph once."""
        source = str(graph.path) if self.modules else None
        path = self.modules.of(graph.path, budget=evidence.left).path if self.modules else graph.path
        opened = process.call("session_open", budget=evidence.left, path=str(path), source=source)
        number = opened["session"]
        made: list[Any] = process.call(
            "invoke", budget=evidence.left, session=number, fn=graph.entry, arrays=inputs
        )
        process.call("session_close", budget=evidence.left, session=number)
        return made


def xla_on_cpu(request: pytest.FixtureRequest, worker: Worker) -> OnCpu | None:
    try:
        plugin = str(find_cpu_plugin(worker.environ, package_folders()).path)
    except ToolMissingError:
        return None
    shim: Path = request.getfixturevalue("pjrt_shim")
    config = LowererConfig(
        name="xla", platform="cpu", shim=str(shim), plugin=plugin, environment={"PJRT_PLUGIN": plugin}
    )
    return OnCpu(config)


def iree_on_cpu(request: pytest.FixtureRequest, worker: Worker) -> OnCpu | None:
    plan = worker.plan
    if plan.iree.compiler is None or plan.iree.runtime is None:
        return None
    if not any(cell.lowerer == "iree" for cell in plan.cells):
        return None
    compiler: Compiler = request.getfixturevalue("iree_compiler")
    modules = Modules(
        ModuleStore(Path(plan.iree.modules)),
        choose_target("cpu", {}),
        name_of(compiler),
        program=compiler.path,
        env=pin_environment(worker.environ, ()),
    )
    config = LowererConfig(name="iree", platform="cpu", environment={"IREE_DEVICE": "local-task"})
    return OnCpu(config, modules)
