"""Cuts as XLA takes them: each kind of operation of the nets alone, held against the interpreter, and a foreign text."""

from __future__ import annotations

import math
import os
import site
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.lowerers.base import Array, LowererConfig
from pytest_cudaboot.lowerers.build import build_shim
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.toolchain import find_cpu_plugin
from pytest_cudaboot.rules.first_bad import find_first_bad
from pytest_cudaboot.rules.first_bad_facts import largest_error
from pytest_cudaboot.rules.stablehlo_cut import Cut, cut
from pytest_cudaboot.rules.stablehlo_eval import evaluate, rounding_scale
from pytest_cudaboot.rules.stablehlo_text import Function, Operation, read_function

REFERENCE = Path(__file__).parents[2] / "fixtures/reference"
BUDGET = 120.0
Run = Callable[[Cut, Sequence[Array]], list[Array]]
# Integers, booleans, several results of one operation, an operation that float64 is not computed of.
FOREIGN = """\
module @jit_f attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x3xf32>) -> (tensor<4xf32> {jax.result_info = ""}) {
    %c = stablehlo.constant dense<2> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<1> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0:2 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %c_0) : tensor<4x3xf32>, tensor<i32>
     cond {
      %5 = stablehlo.compare  LT, %iterArg_2, %c,  SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      %5 = stablehlo.add %iterArg, %iterArg : tensor<4x3xf32>
      %6 = stablehlo.add %iterArg_2, %c_1 : tensor<i32>
      stablehlo.return %5, %6 : tensor<4x3xf32>, tensor<i32>
    }
    %1 = stablehlo.convert %0#1 : (tensor<i32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
    %3 = stablehlo.compare  GT, %0#0, %2,  FLOAT : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>
    %4 = stablehlo.select %3, %0#0, %2 : tensor<4x3xi1>, tensor<4x3xf32>
    %7 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
    return %7 : tensor<4xf32>
  }
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("cuts")
    plugin = find_cpu_plugin({}, [Path(place) for place in site.getsitepackages()]).path
    shim = build_shim(REFERENCE, folder / "build", env=os.environ)
    config = LowererConfig(name="xla", platform="cpu", shim=str(shim), plugin=str(plugin))
    env = {"PATH": os.defpath, "PJRT_PLUGIN": str(plugin)}
    with DeviceProcess(env=env, log_path=folder / "device.log") as process:
        process.call("open", budget=BUDGET, config=to_json(config))

        def run_one(cut: Cut, arrays: Sequence[Array]) -> list[Array]:
            path = folder / f"{cut.entry}.mlir"
            path.write_text(cut.text)
            opened = process.call("session_open", budget=BUDGET, path=str(path))["session"]
            made: list[Array] = process.call(
                "invoke", budget=BUDGET, session=opened, fn=cut.entry, arrays=list(arrays)
            )
            return made

        yield run_one


def kinds() -> dict[str, tuple[Function, Operation]]:
    """The smallest operation of each kind, and of each layout of a product, in all nets."""
    found: dict[str, tuple[Function, Operation]] = {}
    for path in sorted((REFERENCE / "nets").glob("*_train_step.mlir")):
        function = read_function(path.read_text())
        for op in function.operations:
            layout = op.text.partition("dim")[2].partition(",")[0] if op.kind == "convolution" else ""
            known = found.get(op.kind + layout)
            if known is None or math.prod(op.types[0].shape) < math.prod(known[1].types[0].shape):
                found[op.kind + layout] = function, op
    return found


KINDS = kinds()


@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_alone_is_the_interpreters(run: Run, kind: str) -> None:
    function, op = KINDS[kind]
    alone = cut(
        function, op.results, given=[name for name in op.operands if name in function.types], entry="alone"
    )
    random = np.random.default_rng(2)
    by_name = {
        name: random.uniform(0.1, 1.0, function.types[name].shape).astype(np.float32) for name in alone.inputs
    }
    if op.kind == "select":
        by_name[op.operands[0]] = (by_name[op.operands[0]] > 0.5).astype(np.float32)

    seen = run(alone, [by_name[name] for name in alone.inputs])[0]

    typed = [
        by_name[name] != 0 if function.types[name].dtype == "i1" else by_name[name].astype(float)
        for name in op.operands
    ]
    wanted = evaluate(op, typed)[0]
    assert largest_error(seen, wanted, rounding_scale(op, typed, wanted)) < 2e-6


def test_a_foreign_text_is_cut_and_searched(run: Run) -> None:
    """The loop is left out, since nothing says what it should make; what comes after it is held to its own values."""
    inputs = [np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)]

    clean = find_first_bad(read_function(FOREIGN), inputs, run, lowerer="xla", platform="cpu")

    assert (
        clean.words == "none of 9 operations is off by itself; 1 kinds without a reference: stablehlo.while"
    )


def test_a_fault_behind_a_loop_is_found(run: Run) -> None:
    function = read_function(FOREIGN)
    inputs = [np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)]

    def planted(cut: Cut, arrays: Sequence[Array]) -> list[Array]:
        made = run(cut, arrays)
        return [-array if name == "%4" else array for name, array in zip(cut.outputs, made, strict=True)]

    bad = find_first_bad(function, inputs, planted, lowerer="xla", platform="cpu").bad

    assert bad is not None
    assert (bad.operation.name, bad.cut.inputs) == ("stablehlo.select", ("%0#0", "%2", "%3"))
