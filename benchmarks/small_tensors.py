"""A net of 64 small parameter tensors and little depth: what a step costs beside its arithmetic. It measures nothing.

The reference's `many` has as many, one behind the other, so that the card's own time is most of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fixtures.reference.nets import stablehlo as hlo
from fixtures.reference.nets.layers import Dense, Residual
from fixtures.reference.nets.render import CLASSES, SIDE, Net, step_of
from fixtures.reference.nets.stablehlo import Graph, Shape, Value

WIDTH = 16


@dataclass(frozen=True, slots=True)
class Rows:
    """A dense layer for each row of an image, and the sum of what they make. It has to be a net's first layer."""

    outputs: int

    def parameters(self) -> Sequence[tuple[str, Shape]]:
        return [pair for row in range(SIDE) for pair in self._dense(row).parameters()]

    def forward(self, g: Graph, x: Value, parameters: Sequence[Value]) -> Value:
        made = [
            self._dense(row).forward(g, self._row(g, x, row), parameters[2 * row : 2 * row + 2])
            for row in range(SIDE)
        ]
        total = made[0]
        for more in made[1:]:
            total = hlo.binary(g, "add", total, more)
        return total

    def gradients(self, g: Graph, x: Value, dy: Value) -> Sequence[Value]:
        rows = (self._dense(row).gradients(g, self._row(g, x, row), dy) for row in range(SIDE))
        return [gradient for pair in rows for gradient in pair]

    def pull_back(self, g: Graph, x: Value, y: Value, dy: Value, parameters: Sequence[Value]) -> Value:
        raise NotImplementedError("the images themselves are not learnt")

    def _dense(self, row: int) -> Dense:
        return Dense(SIDE, self.outputs, f"_row{row}")

    def _row(self, g: Graph, x: Value, row: int) -> Value:
        batch, shape = x.shape[0], (x.shape[0], SIDE)
        cut = f"[0:{batch}, {row * SIDE}:{(row + 1) * SIDE}]"
        return g.emit(f"slice {x.name} {cut} : ({x.type}) -> {hlo.tensor(shape)}", shape)


def train_step() -> str:
    """The net's train step as StableHLO text, with the entry `wide_train_step`."""
    bends = (Residual(WIDTH, f"_bend{number}") for number in range(3))
    return step_of("wide", Net((Rows(WIDTH), *bends, Dense(WIDTH, CLASSES, "_last"))))
