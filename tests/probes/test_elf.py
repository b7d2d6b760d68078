"""ELF files: what they need, offer and search, and how a damaged one is refused."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import DataError
from pytest_cudaboot.probes import elf

SOURCE = """
double cos(double);
static int hidden_by_static(void) { return 1; }
__attribute__((visibility("hidden"))) int hidden_by_attribute(void) { return 2; }
__attribute__((weak)) int weak(void) { return 3; }
int offered(double x) { return hidden_by_static() + hidden_by_attribute() + weak() + (int)cos(x); }
"""

READERS: list[Callable[[Path], Any]] = [
    elf.needed,
    elf.soname,
    elf.rpath,
    elf.exported,
    elf.undefined,
    elf.static_symbols,
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Links a library of the source above with more words for gcc."""
    folder = tmp_path_factory.mktemp("elf")
    source = folder / "source.c"
    source.write_text(SOURCE)

    def build_one(*words: str) -> Path:
        made = folder / f"{abs(hash(words))}.so"
        subprocess.run(["/usr/bin/env", "gcc", "-shared", "-fPIC", source, "-o", made, *words], check=True)
        return made

    return build_one


def test_needed_libraries_in_order(build: Callable[..., Path]) -> None:
    assert elf.needed(build("-Wl,--no-as-needed", "-lm", "-lc", "-nostdlib")) == ("libm.so.6", "libc.so.6")


def test_a_name_of_its_own_or_none(build: Callable[..., Path]) -> None:
    assert elf.soname(build("-Wl,-soname,libown.so.3")) == "libown.so.3"
    assert elf.soname(build()) is None


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_the_search_path_as_written(build: Callable[..., Path], tags: str) -> None:
    assert elf.rpath(build(f"-Wl,{tags},-rpath,$ORIGIN/../lib:/usr/local/cuda")) == (
        "$ORIGIN/../lib",
        "/usr/local/cuda",
    )


def test_without_a_search_path_it_is_empty(build: Callable[..., Path]) -> None:
    assert elf.rpath(build()) == ()


def test_what_others_may_bind(build: Callable[..., Path]) -> None:
    assert elf.exported(build()) == {"offered", "weak"}


def test_what_somebody_else_must_offer(build: Callable[..., Path]) -> None:
    assert "cos" in elf.undefined(build())
    assert "offered" not in elf.undefined(build())


def test_local_and_global_functions_as_nm_prints_them(build: Callable[..., Path]) -> None:
    symbols = elf.static_symbols(build())

    assert symbols is not None
    assert {
        ("hidden_by_static", "t"),
        ("hidden_by_attribute", "t"),
        ("offered", "T"),
        ("weak", "T"),
    } <= symbols


def test_a_stripped_file_has_no_word_on_local_functions(build: Callable[..., Path]) -> None:
    stripped = build("-s")

    assert elf.static_symbols(stripped) is None
    assert elf.exported(stripped) == {"offered", "weak"}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("content", [b"", b"\x7fEL", b"#!/bin/sh\n", b"INPUT(libcuda.so.1)"])
def test_what_is_no_elf_file_is_named(tmp_path: Path, read: Callable[[Path], Any], content: bytes) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(content)

    with pytest.raises(DataError, match=r"other.so is not an ELF file: it begins with b'"):
        read(other)


def test_every_truncation_is_a_damaged_file(build: Callable[..., Path], tmp_path: Path) -> None:
    whole, cut = build().read_bytes(), tmp_path / "cut.so"
    for size in range(4, len(whole), len(whole) // 60):
        cut.write_bytes(whole[:size])
        with pytest.raises(DataError, match=rf"cut.so is a damaged ELF file \({size} bytes\)"):
            elf.exported(cut)


def test_only_the_beginning_decides_what_is_elf(build: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")

    assert elf.is_elf(build())
    assert not elf.is_elf(tmp_path / "text")
    assert os.access(build(), os.X_OK)
