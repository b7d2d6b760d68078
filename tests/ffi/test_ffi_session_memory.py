"""What a compiled program takes of its device, told before it has run."""

from __future__ import annotations

from pathlib import Path

from tests.ffi.helpers import Child, Json, create

ELEMENTS = 1 << 20
BYTES = 4 * ELEMENTS
SORTED = f"""
module @m {{
  func.func @sorted(%a: tensor<{ELEMENTS}xf32>) -> tensor<{ELEMENTS}xf32> {{
    %0 = "stablehlo.sort"(%a) ({{
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %less = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    }}) {{dimension = 0 : i64}} : (tensor<{ELEMENTS}xf32>) -> tensor<{ELEMENTS}xf32>
    return %0 : tensor<{ELEMENTS}xf32>
  }}
}}
"""
MEMORY: Json = {"op": "memory", "session": 0}


def test_a_real_plugin_counts_arguments_and_outputs_to_the_byte(
    child: Child, real_plugin: Path, tmp_path: Path
) -> None:
    (tmp_path / "sorted.mlir").write_text(SORTED)

    made, answer = child(create(tmp_path / "sorted.mlir"), MEMORY, PJRT_PLUGIN=str(real_plugin))

    assert made["made"], made["said"]
    facts = answer["facts"]
    assert (facts["arguments"], facts["outputs"], facts["aliased"]) == (BYTES, BYTES, 0)
    assert facts["peak"] == 0 or facts["peak"] >= 2 * BYTES


def test_a_plugin_that_does_not_tell_is_named_as_such(child: Child, tiny: Path, modules: Path) -> None:
    _, answer = child(create(modules / "pair.mlir"), MEMORY, PJRT_PLUGIN=str(tiny))

    assert answer["code"] == 1
    assert "pjrt_ffi_session_memory: this plugin does not tell what a program takes" in answer["said"]


def test_no_session_and_too_little_room_are_refused(child: Child, real_plugin: Path, modules: Path) -> None:
    none, _, small = child(
        {"op": "memory", "session": None},
        create(modules / "pair.mlir"),
        {"op": "memory", "session": 0, "room": 8},
        PJRT_PLUGIN=str(real_plugin),
    )

    assert (none["code"], small["code"]) == (1, 1)
    assert "no session, or no room to write to" in none["said"]
    assert "the facts do not fit into 8 bytes" in small["said"]
