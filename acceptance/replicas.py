"""A question whose answer tells how replicas were run, and the devices that it is put to. It holds no test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_cudaboot.lowerers.base import Array
from pytest_cudaboot.run.handles import LowererHandle


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
