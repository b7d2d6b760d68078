"""A small thing to train, for the tests of what stays on the device."""

from __future__ import annotations

from typing import Any

from tests.ffi.helpers import Json, invoke, tensor

# Four numbers drift to where x is, with momentum; w and m are what training updates.
DRIFT = """
module @m {
  func.func @drift(%x: tensor<4xf32>, %w: tensor<4xf32> {tf.note = "w"}, %m: tensor<4xf32> {}, %lr: tensor<f32>)
      -> (tensor<4xf32>, tensor<4xf32>, tensor<f32>) {
    %0 = stablehlo.subtract %w, %x : tensor<4xf32>
    %1 = stablehlo.tanh %0 : tensor<4xf32>
    %2 = stablehlo.add %m, %1 : tensor<4xf32>
    %3 = stablehlo.broadcast_in_dim %lr, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %4 = stablehlo.multiply %3, %2 : tensor<4xf32>
    %5 = stablehlo.subtract %w, %4 : tensor<4xf32>
    %6 = stablehlo.multiply %1, %1 : tensor<4xf32>
    %7 = stablehlo.constant dense<0.0> : tensor<f32>
    %8 = stablehlo.reduce(%6 init: %7) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    return %5, %2, %8 : tensor<4xf32>, tensor<4xf32>, tensor<f32>
  }
}
"""

# The same for two replicas, which share the slope; each has half of x.
SHARED = DRIFT.replace("@drift(", "@shared(").replace(
    "    %2 = stablehlo.add %m, %1 : tensor<4xf32>\n",
    """
    %s = "stablehlo.all_reduce"(%1) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %t = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = stablehlo.add %m, %s : tensor<4xf32>
""",
)

STEPS = 5
TOTALS = [4, 4, 1]
RANGE = [1, 0, 2]  # from input 1 on, replaced by the outputs from 0 on, two of them
NOTHING: Json = {"dims": [4], "data": None}
RATE: Json = {"dims": [], "data": [0.25]}
START: list[Json] = [tensor(4, first=0.1), tensor(4, first=-0.5)]


def batch(step: int, places: int = 4) -> Json:
    return tensor(places, first=0.25 * step)


def drift(inputs: list[Json], **rest: Any) -> Json:
    return invoke("drift", inputs, TOTALS, **rest)


def resident(step: int, kept: list[Json] | None = None, **rest: Any) -> Json:
    """A step in update mode; after the first one the host has nothing to say."""
    inputs = kept or (START if step == 0 else [NOTHING, NOTHING])
    skip: Json = {} if step == 0 else {"skip": [0, 1]}
    return drift([batch(step), *inputs, RATE], range=RANGE) | skip | rest


def read(floats: int = 8) -> Json:
    return {"op": "read", "session": 0, "floats": floats}


def copying(steps: range) -> list[Json]:
    """By the copying call: what came out goes in."""
    fed: list[Json] = [{"dims": [4], "last": 0}, {"dims": [4], "last": 1}]
    return [drift([batch(step), *(fed if step else START), RATE]) for step in steps]


def losses(answers: list[Json]) -> list[float]:
    return [answer["outputs"][2][0] for answer in answers]


def state_of(answer: Json) -> list[float]:
    return [*answer["outputs"][0], *answer["outputs"][1]]


SEND, HOLD = -1, -2
ROLES = [SEND, 0, 1, HOLD]  # x; w and m, replaced by the first two outputs; lr
ABSENT: Json = {"dims": [], "data": None}


def step(number: int, **rest: Any) -> Json:
    """The batch is sent, and spoilt as soon as the call is back; of the outputs only the loss is read."""
    inputs = [*START, RATE] if number == 0 else [NOTHING, NOTHING, ABSENT]
    return drift([batch(number), *inputs], roles=ROLES, skip=[0, 1], scribble=True) | rest


def flush(*totals: int) -> Json:
    return {"op": "flush", "session": 0, "totals": list(totals)}
