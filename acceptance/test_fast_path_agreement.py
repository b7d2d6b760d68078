"""Fast path: the cross-backend agreement. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Json, to_json
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.agreement import Agreement, judge_agreement, output_names, require_two
from pytest_cudaboot.rules.controls import broken_outputs, rate_of_zero
from pytest_cudaboot.rules.signature import read_signature
from pytest_cudaboot.rules.tolerances import load_tolerances
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.nets import Graph, Net

from .nets import plainest_net

SEED = 21
STEPS = 5
PAIR = ("xla", "iree")

pytestmark = pytest.mark.spec("fast.agreement")


@dataclass(frozen=True, slots=True)
class Made:
    """What one lowerer did with a graph.

    :param seconds: a step's, where steps were repeated.
    """

    outputs: list[Any]
    signature: Json
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Both:
    """What both did with the same graphs, by lowerer and by the graph's entry."""

    made: Mapping[str, Mapping[str, Made]]
    facts: Mapping[str, Json]
    platform: str

    def judge(self, graph: Graph, inputs: Sequence[Any], **instead: Sequence[Any]) -> Agreement:
        """Their agreement on a graph; `instead` puts other outputs in the place of a lowerer's."""
        outputs = {name: instead.get(name, self.made[name][graph.entry].outputs) for name in PAIR}
        oracle = graph.oracle(inputs)
        return judge_agreement(
            outputs["xla"],
            outputs["iree"],
            oracle,
            tolerance=load_tolerances().of(graph.family, self.platform),
            inputs=inputs,
            updates=graph.updates,
            names=output_names(graph.path.read_text(), graph.updates, len(oracle)),
        )


@pytest.fixture
def through_both(
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
) -> Callable[..., Both]:
    """A function that runs graphs on the same inputs through XLA, and then through IREE.

    One has left the device before the other comes: a warm XLA process keeps most of a card to itself.
    """

    def run_one(handle: LowererHandle, graph: Graph, inputs: Sequence[Any], steps: int) -> Made:
        opened = load(handle, graph.path)
        outputs = opened.invoke(inputs)
        seconds = None
        if steps and graph.updates:
            seconds = median(opened.repeat(inputs, steps, graph.updates, -1)["seconds"])
        opened.close()
        return Made(outputs, opened.signature, seconds)

    def run_both(graphs: Sequence[tuple[Graph, Sequence[Any]]], steps: int) -> Both:
        made, facts, platform = {}, {}, ""
        for name in PAIR:
            handle = open_lowerer(name)
            made[name] = {graph.entry: run_one(handle, graph, inputs, steps) for graph, inputs in graphs}
            facts[name], platform = handle.call("facts"), handle.platform
        return Both(made, facts, platform)

    return run_both


# > The results are checked against [`nets/oracle.py`](nets/oracle.py), which computes the same steps in float64, and against
# > the other lowerer where there is one: per output, within a tolerance for the hardest operation of the net, TF32 on.
def test_both_lowerers_and_the_oracle_agree(
    through_both: Callable[..., Both],
    net: Net,
    evidence: Evidence,
    look_closer: Callable[..., AbstractContextManager[None]],
) -> None:
    graphs = [(graph, graph.inputs(SEED)) for graph in (net.forward, net.step)]

    both = through_both(graphs, STEPS)

    require_two(both.facts["xla"], both.facts["iree"])
    xla, iree = (both.made[name][net.step.entry].seconds for name in PAIR)
    assert xla
    assert iree
    evidence.measure(
        **{
            f"{net.name}_xla_step_ms": 1000 * xla,
            f"{net.name}_iree_step_ms": 1000 * iree,
            f"{net.name}_ratio": iree / xla,
        }
    )
    judged = [(graph, both.judge(graph, inputs)) for graph, inputs in graphs]
    evidence.note(**{f"{graph.entry}_agreement": agreement.to_json() for graph, agreement in judged})
    for (graph, inputs), (_, agreement) in zip(graphs, judged, strict=True):
        evidence.measure(**{f"{graph.entry}_pair_error": agreement.pair.median})
        with look_closer(graph, inputs, PAIR if agreement.off == "both" else [agreement.off]):
            agreement.require()


# > they are given what one file of `nets/` says
def test_both_executables_have_the_texts_signature(
    through_both: Callable[..., Both], project: Project
) -> None:
    net = plainest_net(project)
    inputs = net.step.inputs(SEED)

    both = through_both([(net.step, inputs)], 0)

    told = to_json(read_signature(net.step.path.read_text()))
    for name in PAIR:
        made = both.made[name][net.step.entry]
        assert made.signature == told
        assert [list(array.shape) for array in made.outputs] == [out["shape"] for out in told["outputs"]]


def test_what_is_wrong_on_purpose_is_laid_at_the_right_door(
    through_both: Callable[..., Both], project: Project
) -> None:
    """A comparison that accepts one of these, or blames the other lowerer for it, proves nothing."""
    graph = plainest_net(project).step
    inputs = graph.inputs(SEED)

    both = through_both([(graph, inputs)], 0)

    for name in PAIR:
        outputs = both.made[name][graph.entry].outputs
        for wrong, broken in broken_outputs(outputs, inputs=inputs, updates=graph.updates):
            assert both.judge(graph, inputs, **{name: broken}).off == name, wrong


def test_a_learning_rate_of_zero_is_told_apart(through_both: Callable[..., Both], project: Project) -> None:
    graph = plainest_net(project).step
    assert graph.rate is not None
    inputs = graph.inputs(SEED)

    frozen = through_both([(graph, rate_of_zero(inputs, graph.rate))], 0)

    assert frozen.judge(graph, inputs).off == "both"


def test_xla_in_the_place_of_iree_is_refused(
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
    project: Project,
) -> None:
    handle = open_lowerer("xla")
    load(handle, plainest_net(project).forward.path).close()  # some shims load their plugin for this only
    facts = handle.call("facts")

    with pytest.raises(BoxError, match="what was opened as iree is xla"):
        require_two(facts, facts)
