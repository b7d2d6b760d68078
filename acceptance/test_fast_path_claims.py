"""Fast path: what the document says of the two lowerers beside each other. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.nets import Net

from .nets import convolving_net, plainest_net

SEED = 44
STEPS = 50
DOCUMENTED = "2.3-4.9 in the field's document, 6.6 for linear in the reference's"


def step_ms(session: SessionHandle, net: Net) -> float:
    """A step's median time, arrays of the host in and out."""
    inputs = net.step.inputs(SEED)
    session.repeat(inputs, 3, net.step.updates, -1)  # whatever is done once is done
    return 1000 * float(median(session.repeat(inputs, STEPS, net.step.updates, -1)["seconds"]))


# > is slower (a `linear` step of this size took 0.37 ms with XLA
# > and 2.4 ms with IREE on an H200, 6.6 times as long
@pytest.mark.spec("fast.slower")
def test_how_much_longer_a_step_takes_with_iree(
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
    project: Project,
    evidence: Evidence,
) -> None:
    nets = (plainest_net(project), convolving_net(project))
    taken: dict[str, list[float]] = {}
    for name in ("xla", "iree"):
        handle = open_lowerer(name)
        taken[name] = [step_ms(load(handle, net.step.path), net) for net in nets]

    for place, net in enumerate(nets):
        xla, iree = taken["xla"][place], taken["iree"][place]
        evidence.measure(
            **{
                f"{net.name}_xla_step_ms": round(xla, 3),
                f"{net.name}_iree_step_ms": round(iree, 3),
                f"{net.name}_ratio": round(iree / xla, 2),
            }
        )
    evidence.measure(documented_ratio=DOCUMENTED, load=round(os.getloadavg()[0], 2))
    assert all(iree > xla for xla, iree in zip(taken["xla"], taken["iree"], strict=True))


# > Graphs, data and trainer do not know what runs them: two lowerers differ in one thing, the `.so` that the
# > trainer `dlopen`s.
@pytest.mark.spec("intro.only-so-differs")
def test_what_each_lowerer_alone_has_mapped(
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
    project: Project,
    pjrt_shim: Path,
    evidence: Evidence,
) -> None:
    graph = plainest_net(project).step
    mapped: dict[str, set[str]] = {}
    for name in ("xla", "iree"):
        handle = open_lowerer(name)
        load(handle, graph.path).invoke(graph.inputs(SEED))
        mapped[name] = set(handle.mapped())

    only = {name: sorted(mapped[name] - mapped[other]) for name, other in (("xla", "iree"), ("iree", "xla"))}
    evidence.measure(shared_objects_of_both=len(mapped["xla"] & mapped["iree"]))
    evidence.note(only_xla=only["xla"], only_iree=only["iree"])
    assert pjrt_shim.name in only["xla"]
    assert not [name for name in only["iree"] if "pjrt" in name or "xla" in name]
