"""Step 5: Smoke test, the part that compiles. BOOTSTRAP.md#step-5-smoke-test"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_cudaboot.lowerers.modules import Modules
from pytest_cudaboot.probes.compiler import module_parts
from pytest_cudaboot.rules.signature import check_artifact
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.iree import compiled
from pytest_cudaboot.run.nets import Graph, Net


# > a graph is compiled the first time that it is needed
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
