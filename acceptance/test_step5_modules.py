"""Step 5: Smoke test, the part that compiles. BOOTSTRAP.md#step-5-smoke-test"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_cudaboot.lowerers.modules import Modules
from pytest_cudaboot.probes.compiler import module_parts
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.signature import check_artifact
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.iree import compiled
from pytest_cudaboot.run.nets import Graph, Net

SECONDS = 60.0  # a minute is what nobody calls seconds any more


# > With IREE a graph is compiled the first time that it is needed
@pytest.mark.spec("step5.compiles")
@pytest.mark.parametrize("part", ["forward", "step"])
def test_every_graph_has_its_module(
    modules: Modules, net: Net, part: str, evidence: Evidence, measure: Callable[..., None]
) -> None:
    graph: Graph = getattr(net, part)
    check_artifact(graph.path)

    stored = compiled(modules, graph.path, (), evidence)

    parts = module_parts(stored.path)
    assert len(parts) > 1, f"no executable in {stored.path}"
    measure(**{f"{graph.entry}_compile_seconds": stored.facts["seconds"], f"{graph.entry}_made": stored.made})


# > in seconds for nets of this size
@pytest.mark.spec("step5.compile-seconds")
def test_a_small_net_compiles_in_seconds(
    modules: Modules, project: Project, evidence: Evidence, measure: Callable[..., None]
) -> None:
    graphs = [graph for name in project.nets for graph in (project.forward(name), project.step(name))]
    seconds = {graph.stem: compiled(modules, graph, (), evidence).facts["seconds"] for graph in graphs}

    measure(
        slowest=max(seconds, key=lambda name: seconds[name]), total_seconds=round(sum(seconds.values()), 1)
    )
    assert max(seconds.values()) < SECONDS
