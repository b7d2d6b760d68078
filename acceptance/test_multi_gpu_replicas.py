"""Multi-GPU, one program on several devices. BOOTSTRAP.md#multi-gpu"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.base import Array
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.controls import require_controls
from pytest_cudaboot.rules.numerics import compare
from pytest_cudaboot.rules.tolerances import load_tolerances
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.handles import LowererHandle
from pytest_cudaboot.run.nets import Graph, load_net

from .replicas import Question, Replicas

GUARD = 1
SEED = 33
ON_CPU = (2, 3, 4, 6)


@pytest.fixture
def on_cpu(open_with: Callable[..., LowererHandle], tmp_path: Path) -> Callable[[int], Replicas]:
    """A function that gives so many CPU devices, as replicas."""

    def make(count: int) -> Replicas:
        settings = {"PJRT_REPLICAS": str(count), "CUDABOOT_CPU_DEVICES": str(count)}
        return Replicas(open_with(**settings), tmp_path)

    return make


@pytest.fixture
def on_cards(open_with: Callable[..., LowererHandle], gpus: tuple[Gpu, ...], tmp_path: Path) -> Replicas:
    """All the cards that this test was given, as replicas."""
    return Replicas(open_with(PJRT_REPLICAS=str(len(gpus))), tmp_path)


def hold_to_the_known_answer(replicas: Replicas, count: int, evidence: Evidence) -> None:
    """Run the question as it should be run."""
    said = replicas.ask(Question.of(count))
    evidence.measure(replicas=count, answer=said)
    assert said == "right"


def hold_mistakes_apart(replicas: Replicas, count: int, evidence: Evidence) -> None:
    """Plant each mistake, and see it told from the others."""
    question = Question.of(count)
    first_row_for_all = np.repeat(question.rows[:1], count, axis=0)
    seen = {
        "sum": replicas.ask(Question.of(count, mean=False)),
        "no collective": replicas.ask(Question.of(count, collective=False)),
        "duplicated": replicas.ask(question, first_row_for_all),
        "turned round": replicas.ask(question, question.rows[::-1].copy()),
    }
    evidence.note(mistakes=seen)
    assert seen["sum"] == "sum, not mean"
    assert seen["no collective"] == seen["duplicated"] == "no collective, or one row for all"
    assert seen["turned round"].startswith("replica 0 was given")


def hold_guards(replicas: Replicas, count: int) -> None:
    """A wrong mask, a wrong number of replicas and a batch that does not divide are refused before anything runs."""
    question = Question.of(count)
    with pytest.raises(ShimError, match="input 0 of @question") as unsharded:
        replicas.ask(question, shard=False)
    with pytest.raises(ShimError, match="replica") as fewer:
        replicas.ask(question, count=1)
    with pytest.raises(ShimError, match="does not divide") as odd:
        replicas.ask(question, np.concatenate([question.rows, question.rows[:1]]))
    assert {unsharded.value.code, fewer.value.code, odd.value.code} == {GUARD}
    assert replicas.ask(question) == "right"


STEPS = 5
NETS = ("linear", "mlp")


@pytest.fixture
def step_for(project: Project, run: Runner, tmp_path: Path) -> Callable[[str, int], Path]:
    """A function that renders a net's train step for so many replicas, by the project's own renderer."""

    def render(net: str, count: int) -> Path:
        program = project.path / "nets" / "render.py"
        # The checkout is left as it is, so the interpreter keeps no bytecode there.
        argv: list[str | Path] = [sys.executable, "-B", program, "--step", net, "--replicas", str(count)]
        path = tmp_path / f"{net}_train_step.mlir"
        path.write_text(run(argv, device=False).stdout)
        return path

    return render


@dataclass(frozen=True, slots=True)
class Steps:
    """What steps of training made: the outputs of the first, and each one's loss."""

    first: list[Array]
    losses: list[float]


def train(
    lowerer: LowererHandle, path: Path, graph: Graph, inputs: Sequence[Array], replicas: int | None
) -> Steps:
    """A few steps of a train step: on one device, or on replicas that share the batch (its first input and its last)."""
    session = lowerer.open_session(path)
    arrays, steps = list(inputs), []
    shard = [index in (0, len(arrays) - 1) for index in range(len(arrays))]
    for _ in range(STEPS):
        if replicas is None:
            made = session.invoke(arrays)
        else:
            made = session.call(
                "invoke_dp", function=graph.entry, replicas=replicas, arrays=arrays, shard=shard
            )
        steps.append(made)
        for output, into in graph.updates.items():
            arrays[into] = made[output]
    session.close()
    return Steps(steps[0], [float(made[-1]) for made in steps])


def hold_to_one_device(replicas: Replicas, path: Path, graph: Graph, count: int, evidence: Evidence) -> None:
    """Training on replicas against the oracle of the whole batch, and against one device on the whole batch.

    The one device is one of the same process, so that nothing differs but the number of replicas.
    """
    inputs = graph.inputs(SEED)
    tolerance = load_tolerances().of(graph.family, replicas.lowerer.platform)

    shared = train(replicas.lowerer, path, graph, inputs, count)
    alone = train(replicas.lowerer, graph.path, graph, inputs, None)

    compared = compare(
        shared.first, graph.oracle(inputs), tolerance=tolerance, inputs=inputs, updates=graph.updates
    )
    apart = max(abs(a - b) / abs(b) for a, b in zip(shared.losses, alone.losses, strict=True))
    evidence.measure(
        **{
            f"{graph.entry}_on_{count}_median_error": compared.median,
            f"{graph.entry}_on_{count}_losses": apart,
        }
    )
    compared.require()
    assert apart < tolerance.p90
    assert shared.losses[-1] < shared.losses[0]
    require_controls(
        shared.first, graph.oracle(inputs), tolerance=tolerance, inputs=inputs, updates=graph.updates
    )


@pytest.fixture
def train_on_cards(
    on_cards: Replicas,
    step_for: Callable[[str, int], Path],
    gpus: tuple[Gpu, ...],
    project: Project,
    evidence: Evidence,
) -> Callable[[str], None]:
    """A function that trains a net on all the cards that this test was given, and holds that to one device."""

    def hold(name: str) -> None:
        path, graph = step_for(name, len(gpus)), load_net(project, name).step
        hold_to_one_device(on_cards, path, graph, len(gpus), evidence)

    return hold


@pytest.mark.spec("multi.dp-cpu")
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", NETS)
def test_cpu_devices_train_as_one_does(
    on_cpu: Callable[[int], Replicas],
    step_for: Callable[[str, int], Path],
    project: Project,
    name: str,
    count: int,
    evidence: Evidence,
) -> None:
    path, graph = step_for(name, count), load_net(project, name).step
    hold_to_one_device(on_cpu(count), path, graph, count, evidence)


@pytest.mark.spec("multi.dp")
@pytest.mark.parametrize("name", NETS)
def test_cards_train_as_one_does(train_on_cards: Callable[[str], None], name: str) -> None:
    train_on_cards(name)


@pytest.mark.spec("multi.dp-four")
@pytest.mark.parametrize("name", NETS)
def test_four_cards_train_as_one_does(train_on_cards: Callable[[str], None], name: str) -> None:
    train_on_cards(name)


@pytest.mark.spec("multi.dp-cpu")
@pytest.mark.parametrize("count", ON_CPU)
def test_cpu_devices_share_a_batch(on_cpu: Callable[[int], Replicas], count: int, evidence: Evidence) -> None:
    hold_to_the_known_answer(on_cpu(count), count, evidence)


@pytest.mark.spec("multi.dp-cpu", role="canary")
def test_mistakes_on_cpu_devices_are_told_apart(
    on_cpu: Callable[[int], Replicas], evidence: Evidence
) -> None:
    replicas = on_cpu(3)
    hold_mistakes_apart(replicas, 3, evidence)
    hold_guards(replicas, 3)


@pytest.mark.spec("multi.dp")
def test_cards_share_a_batch(on_cards: Replicas, gpus: tuple[Gpu, ...], evidence: Evidence) -> None:
    hold_to_the_known_answer(on_cards, len(gpus), evidence)


@pytest.mark.spec("multi.dp", role="canary")
def test_mistakes_on_cards_are_told_apart(
    on_cards: Replicas, gpus: tuple[Gpu, ...], evidence: Evidence
) -> None:
    hold_mistakes_apart(on_cards, len(gpus), evidence)
    hold_guards(on_cards, len(gpus))


@pytest.mark.spec("multi.dp-four")
def test_four_cards_share_a_batch(on_cards: Replicas, gpus: tuple[Gpu, ...], evidence: Evidence) -> None:
    hold_to_the_known_answer(on_cards, len(gpus), evidence)


@pytest.mark.spec("multi.dp-four", role="canary")
def test_mistakes_on_four_cards_are_told_apart(
    on_cards: Replicas, gpus: tuple[Gpu, ...], evidence: Evidence
) -> None:
    hold_mistakes_apart(on_cards, len(gpus), evidence)
    hold_guards(on_cards, len(gpus))
