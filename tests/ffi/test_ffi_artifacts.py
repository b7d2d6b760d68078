"""What a session refuses to be made of, and what it takes: the artifact rules, from files and from text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.ffi.helpers import Child, Json, create, invoke, tensor

ONE = "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"

BAD_TEXT: dict[str, tuple[str, str]] = {
    "empty": ("", "the file is empty"),
    "blank": (" \n\n", "no 'func.func @' in module"),
    "no-function": ("module @m { }", "no 'func.func @' in module"),
    "only-in-comment": ("// func.func @f() {}\nmodule {}", "no 'func.func @' in module"),
    "only-in-string": ('module attributes {a = "func.func @f() {}"} {}', "no 'func.func @' in module"),
    "several": (
        f"module {{ {ONE} {ONE.replace('@f', '@g')} }}",
        "several functions (@f and @g); exactly one",
    ),
    "private-second": (f"{ONE} func.func private @h()", "several functions (@f and @h)"),
    "declaration": ("func.func private @f(tensor<4xf32>) -> tensor<4xf32>", "a function without a body"),
    "no-body": ("func.func @f(%a: tensor<4xf32>)", "the function has no body"),
    "no-name": ("func.func (%a: tensor<4xf32>) {}", "a name does not start with '@'"),
    "dynamic": ("func.func @f(%a: tensor<?x4xf32>) {}", "a dynamic dimension ('?')"),
    "dynamic-result": ("func.func @f() -> tensor<4x?xf32> {}", "a dynamic dimension ('?')"),
    "unranked": ("func.func @f(%a: tensor<*xf32>) {}", "has no rank ('*')"),
    "encoding": ("func.func @f(%a: tensor<4xf32, #x>) {}", "a tensor has an encoding"),
    "scalar": ("func.func @f(%a: f32) {}", "something other than a tensor"),
    "token": ("func.func @f(%a: !stablehlo.token) {}", "something other than a tensor"),
    "no-element": ("func.func @f(%a: tensor<4x>) {}", "no element type"),
    "long-element": (f"func.func @f(%a: tensor<{'f' * 99}>) {{}}", "an element type is too long"),
    "seventeen": (f"func.func @f(%a: tensor<{'1x' * 17}f32>) {{}}", "more than 16 dimensions"),
    "overflow": ("func.func @f(%a: tensor<99999999999999999999xf32>) {}", "a dimension is too large"),
    "too-many": (f"func.func @f(%a: tensor<{'999999999x' * 4}f32>) {{}}", "too many elements"),
    "cut-in-type": ("func.func @f(%a: tensor<4xf3", "a tensor's type does not end"),
    "cut-in-signature": ("func.func @f(%a: tensor<4xf32>", "the signature does not end"),
    "cut-in-attribute": ("func.func @f(%a: tensor<4xf32> {x = 1", "ends inside a bracket"),
    "cut-in-body": (ONE[:-1], "the text ends inside a block: truncated?"),
    "cut-in-string": (ONE + ' "abc', "a string does not end"),
    "cut-after-escape": (ONE + ' "abc\\', "a string does not end"),
    "brace-too-many": (ONE + " }", "a '}' too many"),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_text_is_refused(child: Child, tiny: Path, tmp_path: Path, case: str) -> None:
    text, words = BAD_TEXT[case]
    path = tmp_path / "f.mlir"
    path.write_text(text)

    (answer,) = child(create(path), PJRT_PLUGIN=str(tiny))

    assert not answer["made"]
    assert answer["said"].startswith(f"[pjrt_ffi] {path}: ")
    assert words in answer["said"]


def test_the_line_is_named(child: Child, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text("// one\n// two\nfunc.func @f(%a: tensor<?xf32>) {}")

    (answer,) = child(create(tmp_path / "f.mlir"), PJRT_PLUGIN=str(tiny))

    assert "f.mlir: line 3: a tensor has a dynamic dimension" in answer["said"]


BAD_BYTES = {
    "vmfb": (b"PK\x03\x04-\0\0\0module.fb", "a compiled .vmfb (that is for the IREE shim)"),
    "flatbuffer": (b"\x10\0\0\0IREE\0\0", "a compiled .vmfb (that is for the IREE shim)"),
    "bytecode": (b"ML\xefR\x03", "MLIR bytecode"),
    "elf": (b"\x7fELF\x02\x01\0", "an ELF file"),
    "nul": (b"func.func @f() {}\0", "a binary file"),
}


@pytest.mark.parametrize("case", BAD_BYTES)
def test_binary_is_refused(child: Child, tiny: Path, tmp_path: Path, case: str) -> None:
    content, words = BAD_BYTES[case]
    (tmp_path / "f.vmfb").write_bytes(content)

    (answer,) = child(create(tmp_path / "f.vmfb"), PJRT_PLUGIN=str(tiny))

    assert not answer["made"]
    assert f"this is {words}; the XLA shim takes StableHLO text" in answer["said"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere.mlir", "No such file or directory"),
        (".", "not a regular file"),
        ("/dev/null", "not a regular file"),
    ],
)
def test_what_is_no_file_is_refused(child: Child, tiny: Path, tmp_path: Path, path: str, words: str) -> None:
    (answer,) = child(create(path), cwd=tmp_path, PJRT_PLUGIN=str(tiny))

    assert answer == {"made": False, "said": f"[pjrt_ffi] {path}: {words}\n"}


def test_a_bad_artifact_costs_no_client(child: Child, tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text("module {}")

    (answer,) = child(create(tmp_path / "f.mlir"), PJRT_PLUGIN="/nowhere.so")

    assert "no 'func.func @' in module" in answer["said"]
    assert "nowhere" not in answer["said"]


ODD_BUT_GOOD = """
#loc = loc("a // b")
// a comment with "quotes and func.func @no
module @"odd name" attributes {doc = "}{ \\" func.func @no"} {
  func.func public @"f.x"(%a : tensor<2x2xf32> {tf.note = "a{)"} loc("q)"),
      %b: tensor<f32>) -> (tensor<2x2xf32> {x = 1 : i32}, tensor<f32>)
      attributes {other = "stablehlo.all_reduce is only mentioned"} { // all_reduce
    return %a, %b : tensor<2x2xf32>, tensor<f32>
  }
}
"""


def test_odd_but_legal_text_is_read(child: Child, tiny: Path, tmp_path: Path) -> None:
    """Also that an all_reduce in a comment or a sentence is none: it is compiled for one replica."""
    (tmp_path / "f.mlir").write_text(ODD_BUT_GOOD)
    op = invoke("f.x", [tensor(2, 2), tensor()], [4, 1])

    made, answer = child(create(tmp_path / "f.mlir"), op, PJRT_PLUGIN=str(tiny), PJRT_REPLICAS="2")

    assert made["made"], made["said"]
    assert answer == {"code": 0, "outputs": [[1, 2, 3, 4], [1]], "said": ""}


AS_JAX_WRITES_IT = """
#loc = loc(unknown)
module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @f(%arg0: tensor<2x2xf32> {mhlo.sharding = "{replicated}"} loc(unknown), // first
      %arg1: tensor<f32> loc("b")) -> (tensor<2x2xf32> {jax.result_info = "out[0]"}, tensor<f32>) {
    return %arg0, %arg1 : tensor<2x2xf32>, tensor<f32> loc(#loc)
  } loc(#loc)
} loc(#loc)
"""


def test_text_as_jax_writes_it_runs(child: Child, real_plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text(AS_JAX_WRITES_IT)
    op = invoke("jit_f.f", [tensor(2, 2), tensor()], [4, 1])

    made, answer = child(create(tmp_path / "f.mlir"), op, PJRT_PLUGIN=str(real_plugin), PJRT_REPLICAS="2")

    assert made["made"], made["said"]
    assert answer == {"code": 0, "outputs": [[1, 2, 3, 4], [1]], "said": ""}


def test_what_the_compiler_refuses_is_told_in_its_words(
    child: Child, real_plugin: Path, tmp_path: Path
) -> None:
    (tmp_path / "f.mlir").write_text(ONE.replace("return", "nonsense.op"))

    (answer,) = child(create(tmp_path / "f.mlir"), PJRT_PLUGIN=str(real_plugin))

    assert not answer["made"]
    assert "PJRT_Client_Compile: " in answer["said"]


def test_empty_tensors_run(child: Child, real_plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text(ONE.replace("4x", "0x4x"))
    empty: Json = {"dims": [0, 4], "data": None}

    made, answer = child(create(tmp_path / "f.mlir"), invoke("f", [empty], [0]), PJRT_PLUGIN=str(real_plugin))

    assert made["made"], made["said"]
    assert answer == {"code": 0, "outputs": [[]], "said": ""}


def test_a_path_may_have_any_bytes(child: Child, tiny: Path, modules: Path, tmp_path: Path) -> None:
    path = tmp_path / 'a "b" é.mlir'
    shutil.copy(modules / "pair.mlir", path)

    (answer,) = child(create(path), PJRT_PLUGIN=str(tiny))

    assert answer["made"], answer["said"]
