"""Signatures read from StableHLO text, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.errors import SignatureError
from pytest_cudaboot.rules.signature import Signature, TensorType, check_artifact, read_signature

NETS = Path(__file__).parents[2] / "fixtures" / "reference" / "nets"
BODY = "{\n    return %x : tensor<4xf32>\n  }"
GOOD = f"module @m {{\n  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {BODY}\n}}\n"
VECTOR = TensorType((4,), "f32")


def head(arguments: str, results: str) -> str:
    return f"module {{\n  func.func public @f({arguments}) -> {results} {BODY}\n}}\n"


def artifact(folder: Path, content: str | bytes, name: str = "f.mlir") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_one_result_needs_no_parentheses() -> None:
    assert read_signature(GOOD) == Signature("f", (VECTOR,), (VECTOR,))


def test_ranks_and_element_types_are_told_apart() -> None:
    signature = read_signature(
        head("%a: tensor<f32>, %b: tensor<2x0x3xbf16>", "(tensor<1xi32>, tensor<f32>)")
    )

    assert [str(t) for t in signature.inputs] == ["tensor<f32>", "tensor<2x0x3xbf16>"]
    assert [t.shape for t in signature.outputs] == [(1,), ()]


def test_complex_elements_keep_their_brackets() -> None:
    assert read_signature(head("", "tensor<2xcomplex<f32>>")).outputs == (TensorType((2,), "complex<f32>"),)


def test_attributes_of_arguments_and_results_are_tolerated() -> None:
    text = head(
        '%x: tensor<4xf32> {tf.aliasing_output = 0 : i32, a = "\\"}, tensor<9xf32>"} loc("x")',
        '(tensor<4xf32> {jax.result_info = "[0]", map = affine_map<(d0) -> (d0)>})',
    )

    assert read_signature(text) == Signature("f", (VECTOR,), (VECTOR,))


def test_a_function_may_have_attributes_of_its_own() -> None:
    text = GOOD.replace("-> tensor<4xf32> {", "-> tensor<4xf32> attributes {a = [1, 2]} {")

    assert read_signature(text).entry == "f"


def test_a_quoted_name_is_taken_out_of_its_quotes() -> None:
    assert read_signature(GOOD.replace("@f(", '@"a func.func" (')).entry == "a func.func"


def test_comments_and_strings_do_not_count() -> None:
    text = '// func.func @no() {\nmodule attributes {a = "func.func @no( // {"} ' + GOOD[len("module @m ") :]

    assert read_signature(text.replace("%x:", '// %y: tensor<?xf32>, "\n %x:')).inputs == (VECTOR,)


def test_a_head_may_run_over_several_lines() -> None:
    text = GOOD.replace("(%x: ", "(\n      %x\n      : ").replace(") ->", "\n  )\n  ->")

    assert read_signature(text) == read_signature(GOOD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no func.func in the text"),
        ('module { "stablehlo.func"() : () -> () }', "no func.func in the text"),
        (GOOD.replace("\n}", f"\n  func.func @g() {BODY}\n}}"), r"2 functions \('f', 'g'\)"),
        (GOOD + "module @n {}", "line 6: 2 modules; an artifact is one module"),
        (GOOD[:-3], r"line 1: '\{' is never closed; is the text cut off\?"),
        (GOOD + "}", r"line 6: '\}' closes nothing"),
        (GOOD.replace("4xf32", "?x4xf32", 1), r"line 2: tensor<\?x4xf32> has a dynamic dimension"),
        (GOOD.replace("4xf32", "*xf32", 1), r"line 2: tensor<\*xf32> is no plain tensor type"),
        (GOOD.replace("4xf32", "4xf32, #csr", 1), r"tensor<4xf32, #csr> is no plain tensor type"),
        (GOOD.replace("4xf32", "4x", 1), r"tensor<4x> is no plain tensor type"),
        (
            GOOD.replace("tensor<4xf32>", "!stablehlo.token", 1),
            "expected a tensor type, found '!stablehlo.token",
        ),
        (GOOD.replace("-> tensor<4xf32>", "-> f32"), "line 2: expected a tensor type, found 'f32"),
        (GOOD.replace("(%x: tensor<4xf32>)", "(%x: tensor<4xf32> 7)"), "is not one tensor"),
        (GOOD.replace("(%x: tensor<4xf32>)", "(%x: tensor<4xf32>,,)"), "is not one tensor|expected a tensor"),
        (GOOD.replace("@f", "f"), "func.func is not followed by @name"),
        (GOOD.replace("@f(", "@f -> ("), "not followed by its arguments in parentheses"),
        (GOOD.replace("@m", '@m attributes {a = "x}'), "line 1: a string does not end"),
        (f"func.func private @f({'%x: tensor<4xf32>'}) -> tensor<4xf32>", "@f is declared, and has no body"),
    ],
)
def test_what_is_no_artifact_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        read_signature(text)


@pytest.mark.parametrize("cut", range(0, len(GOOD) - 2, 7))
def test_a_text_cut_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(SignatureError):
        read_signature(GOOD[:cut])


def test_the_reference_artifacts_keep_the_rules() -> None:
    checked = {path.stem: check_artifact(path) for path in sorted(NETS.glob("*.mlir"))}

    assert len(checked) == 16
    assert all(signature.entry == stem for stem, signature in checked.items())
    assert str(checked["cnn_fwd"].inputs[3]) == "tensor<18x4x3x3xf32>"
    assert str(checked["linear_fwd"].inputs[1]) == "tensor<784x10xf32>"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.mlir", GOOD, r"g.mlir: the entry is called 'f'; the file asks for 'g'"),
        ("f.mlir", GOOD.replace("4xf32", "4xi32", 1), r"input 0 is tensor<4xi32>; the ABI passes f32 only"),
        ("f.mlir", head("", "(tensor<4xf32>, tensor<f64>)"), "output 1 is tensor<f64>"),
        ("f.mlir", b"ML\xefR\x0d", r"f.mlir: is not StableHLO text: byte 2 is not UTF-8"),
        ("f.mlir", b"IREE\0\0", r"f.mlir: is not StableHLO text: byte 4 is zero"),
        ("f.mlir", "module {", r"f.mlir: line 1: '\{' is never closed"),
    ],
)
def test_an_artifact_that_breaks_a_rule_is_refused(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = artifact(tmp_path, content, name)

    with pytest.raises(SignatureError, match=message):
        check_artifact(path)


def test_an_absent_artifact_is_named(tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match=r"gone.mlir: can not be read: No such file"):
        check_artifact(tmp_path / "gone.mlir")
