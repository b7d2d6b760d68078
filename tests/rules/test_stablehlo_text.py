"""What is read of an artifact's operations, in the renderer's form and in those of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.errors import SignatureError
from pytest_cudaboot.rules.stablehlo_text import read_function

NETS = sorted((Path(__file__).parents[2] / "fixtures/reference/nets").glob("*.mlir"))
FOREIGN = """\
#loc = loc("net.py")
module @jit_step attributes {mhlo.num_partitions = 1 : i32} {
  func.func @step(%arg0: tensor<2x3xf32> {jax.result = "%x: y"}, %arg1: tensor<i32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
    %c = stablehlo.constant dense<3> : tensor<i32> // three = %arg9
    %cst = stablehlo.constant dense<[0.5, 1.5, 2.5]> : tensor<3xf32> loc("a, %b = c"(#loc))
    %0:2 = stablehlo.while(%iterArg = %arg0, %iterArg_0 = %arg1) : tensor<2x3xf32>, tensor<i32>
    cond {
      %4 = stablehlo.compare LT, %iterArg_0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %4 = stablehlo.add %iterArg_0, %c : tensor<i32>
      stablehlo.return %iterArg, %4 : tensor<2x3xf32>, tensor<i32>
    }
    %1 = stablehlo.reduce(%0#0 init: %cst_1) across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
     reducer(%a: tensor<f32>, %b: tensor<f32>) {
      %4 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }
    %2 = "stablehlo.tanh"(%0#0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %3, %state = "stablehlo.rng_bit_generator"(%1) {rng = #stablehlo<rng_algorithm DEFAULT>} : (tensor<2xf32>) -> (tensor<2xui64>, tensor<4xui32>)
    return %2, %1 : tensor<2x3xf32>, tensor<2xf32>
  }
}
"""


@pytest.mark.parametrize("path", NETS, ids=lambda path: path.stem)
def test_every_operation_of_the_nets_has_its_type(path: Path) -> None:
    text = path.read_text()

    function = read_function(text)

    lines = text.splitlines()
    assert all(op.types for op in function.operations)
    assert all(lines[op.line - 1].strip() == op.text.splitlines()[0] for op in function.operations)
    assert text.count("\n    %") == len(function.operations)


def test_a_foreign_text_is_read() -> None:
    function = read_function(FOREIGN)

    assert [op.kind for op in function.operations] == [
        *("constant", "constant", "while", "reduce", "tanh", "rng_bit_generator")
    ]
    assert [op.results for op in function.operations][2:] == [
        *(("%0#0", "%0#1"), ("%1",), ("%2",), ("%3", "%state"))
    ]
    assert function.operations[2].operands == ("%arg0", "%arg1", "%c")
    assert [str(kind) for kind in function.operations[2].types] == ["tensor<2x3xf32>", "tensor<i32>"]
    assert [str(kind) for kind in function.operations[5].types] == ["tensor<2xui64>", "tensor<4xui32>"]
    assert function.returned == ("%2", "%1")


def test_a_location_is_no_part_of_an_operation() -> None:
    assert read_function(FOREIGN).operations[1].text.endswith("tensor<3xf32>")


def test_an_operation_of_another_type_system_stays_opaque() -> None:
    text = FOREIGN.replace(
        '%2 = "stablehlo.tanh"(%0#0) : (tensor<2x3xf32>) -> tensor<2x3xf32>', "%2 = a.b %0#0 : !a.t"
    )

    assert read_function(text).operations[4].types == ()


def test_a_value_that_nothing_makes_is_refused() -> None:
    with pytest.raises(SignatureError, match="@step returns %9, which nothing in it makes"):
        read_function(FOREIGN.replace("return %2, %1", "return %9, %1"))
