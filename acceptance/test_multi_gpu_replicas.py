"""Multi-GPU, one program on several devices. BOOTSTRAP.md#multi-gpu"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.base import Array
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.run.devices import LowererHandle
from pytest_cudaboot.run.evidence import Evidence

GUARD = 1
ON_CPU = (2, 3, 4, 6)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A graph whose answer tells how it was run: each replica gets a row, and all get the mean of the rows.

    :param text: outputs are the mean of the rows, the number of replicas that took part, and the replica's own row.
    :param rows: one a replica, no two alike, whole numbers that float32 adds without rounding.
    """

    replicas: int
    text: str
    rows: Array

    @classmethod
    def of(cls, replicas: int, *, mean: bool = True, collective: bool = True) -> Question:
        """The question, or one with a mistake planted.

        :param mean: False sums and forgets to divide.
        :param collective: False adds up nothing but what it counts the replicas with.
        """
        rows = np.array([[1 + k, 2 + 2 * k] for k in range(replicas)], np.float32)
        rows[-1] += replicas * np.array([11, 22], np.float32) - rows.sum(axis=0)
        return cls(replicas=replicas, text=_text(replicas, mean=mean, collective=collective), rows=rows)

    def diagnosis(self, answer: Sequence[Array]) -> str:
        """What the answer tells."""
        mean, count, own = (np.asarray(array, np.float32).ravel() for array in answer)
        right = self.rows.mean(axis=0)
        if int(count[0]) != self.replicas:
            return f"{int(count[0])} replicas took part, not {self.replicas}"
        if not np.array_equal(own, self.rows[0]):
            return f"replica 0 was given {own}, not its shard {self.rows[0]}"
        if np.array_equal(mean, right):
            return "right"
        known = {"sum, not mean": right * self.replicas, "no collective, or one row for all": own}
        named = (name for name, array in known.items() if np.array_equal(mean, array))
        return next(named, f"{mean} is neither the mean {right} nor a known mistake")


def _text(replicas: int, *, mean: bool, collective: bool) -> str:
    row = "tensor<1x2xf32>"
    summed = _all_reduce("%x", row, replicas) if collective else f"stablehlo.add %x, %zeros : {row}"
    parts = float(replicas if mean and collective else 1)
    return f"""
module @m {{
  func.func @question(%x: {row}) -> ({row}, tensor<1x1xf32>, {row}) {{
    %zeros = stablehlo.constant dense<0.0> : {row}
    %one = stablehlo.constant dense<1.0> : tensor<1x1xf32>
    %parts = stablehlo.constant dense<{parts}> : {row}
    %count = {_all_reduce("%one", "tensor<1x1xf32>", replicas)}
    %sum = {summed}
    %mean = stablehlo.divide %sum, %parts : {row}
    return %mean, %count, %x : {row}, tensor<1x1xf32>, {row}
  }}
}}
"""


def _all_reduce(value: str, kind: str, replicas: int) -> str:
    groups = ", ".join(map(str, range(replicas)))
    return f""""stablehlo.all_reduce"({value}) ({{
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{replica_groups = dense<[[{groups}]]> : tensor<1x{replicas}xi64>}} : ({kind}) -> {kind}"""


@dataclass(frozen=True, slots=True)
class Replicas:
    """A lowerer on several devices, and a place for graphs."""

    lowerer: LowererHandle
    folder: Path

    def ask(
        self, question: Question, rows: Array | None = None, *, count: int | None = None, shard: bool = True
    ) -> str:
        """Run a question.

        :param rows: others than the question's own.
        :param count: replicas to invoke it for; those that it was compiled for if not given.
        :param shard: whether each replica gets its row, or all get all of them.
        """
        path = self.folder / "question.mlir"
        path.write_text(question.text)
        session = self.lowerer.open_session(path)
        given = question.rows if rows is None else rows
        try:
            answer = session.call(
                "invoke_dp",
                function="question",
                replicas=count or question.replicas,
                arrays=[given],
                shard=[shard],
            )
        finally:
            session.close()
        return question.diagnosis(answer)


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
