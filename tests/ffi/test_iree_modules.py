"""What the IREE shim makes of a file: whether it is a module at all, and what it declares. The runtime is one in name only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ffi.fake_modules import PAIR, vmfb
from tests.ffi.helpers import Child, Json, create, invoke, tensor


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"module @m {}", "this is text; the IREE shim takes a compiled .vmfb"),
        (b"\x7fELF\0\0", "this is an ELF file; the IREE shim takes"),
        (b"ML\xefR\0", "this is MLIR bytecode; the IREE shim takes"),
        (b"\0\1\2", "this is a binary file; the IREE shim takes"),
        (b"PK\3\4" + bytes(40), "truncated: its 44 bytes do not end as a .vmfb does"),
        (b"PK\3\4", "this is text"),
    ],
)
def test_what_is_no_module_is_named(iree: Child, tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.vmfb"
    path.write_bytes(content)

    (answer,) = iree(create(path))

    assert not answer["made"]
    assert answer["said"].startswith(f"[iree_ffi] {path}: {words}")


@pytest.mark.parametrize(
    ("path", "words"), [("/nowhere.vmfb", "No such file or directory"), ("/", "not a regular file")]
)
def test_a_path_without_a_file_is_named(iree: Child, path: str, words: str) -> None:
    assert iree(create(path)) == [{"made": False, "said": f"[iree_ffi] {path}: {words}\n"}]


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ((), "the module exports no function"),
        (("__init|",), "the module exports no function"),
        ((f"pair|{PAIR}", "b|"), "several functions (@pair and @b); exactly one is wanted"),
        (("pair|",), "@pair has no iree.abi.declaration, so its inputs are unknown"),
        (
            ("pair|async func @pair() -> ()",),
            "@pair is not a synchronous function: 'async func @pair() -> ()'",
        ),
        (
            ("pair|sync func @pair(%input0: i32) -> ()",),
            "the module's declaration 'func @pair(%input0: i32) -> ()': line 1: the signature has something other",
        ),
        (
            ("pair|sync func @pair(%input0: tensor<?xf32>) -> ()",),
            "a tensor has a dynamic dimension ('?'); shapes must be static",
        ),
        (("pair|sync func @pair(%input0: tensor<2xf32>",), "the signature does not end"),
    ],
)
def test_a_module_without_one_readable_function_is_refused(
    iree: Child, tmp_path: Path, functions: tuple[str, ...], words: str
) -> None:
    answer, held = iree(create(vmfb(tmp_path / "x.vmfb", *functions)), {"op": "held"})

    assert not answer["made"]
    assert words in answer["said"]
    assert held["held"] == 3


@pytest.mark.parametrize(
    ("declaration", "inputs", "totals"),
    [
        ("sync func @f(%input0: tensor<2xf32>) -> (%output0: tensor<2xf32>)", [tensor(2)], [2]),
        ("sync func @f(%input0: tensor<2xf32>) -> tensor<2xf32>", [tensor(2)], [2]),
        ("sync func @f(%input0: tensor<0x2xf32>) -> (%output0: tensor<0x2xf32>)", [tensor(0, 2)], [0]),
    ],
)
def test_declarations_are_read(
    iree: Child, tmp_path: Path, declaration: str, inputs: list[Json], totals: list[int]
) -> None:
    _, answer = iree(create(vmfb(tmp_path / "f.vmfb", f"f|{declaration}")), invoke("m.f", inputs, totals))

    assert (answer["code"], answer["said"]) == (0, "")


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        (
            "sync func @i(%input0: tensor<4xi32>) -> (%output0: tensor<4xf32>)",
            "input 0 of @i: the module wants tensor<4xi32>, the caller gives tensor<4xf32>",
        ),
        (
            "sync func @i(%input0: tensor<4xf32>) -> (%output0: tensor<4xi32>)",
            "output 0 of @i is tensor<4xi32>, the caller reads float32",
        ),
    ],
)
def test_other_element_types_are_refused(iree: Child, tmp_path: Path, declaration: str, words: str) -> None:
    _, answer = iree(create(vmfb(tmp_path / "i.vmfb", f"i|{declaration}")), invoke("i", [tensor(4)], [4]))

    assert answer["code"] == 1
    assert words in answer["said"]
