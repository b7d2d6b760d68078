"""The build line of a document is found, and held to what only compiles."""

from __future__ import annotations

import pytest

from pytest_cudaboot.errors import ProjectError
from pytest_cudaboot.rules.build_line import SHIM_LINE, documented_line

USUAL = " ".join(SHIM_LINE)


def document(line: str, language: str = "bash") -> str:
    return f"# Up\n\n```{language}\ncd here\n{line}\n```\n"


def test_the_line_is_found_by_what_it_builds() -> None:
    found = documented_line(document(f"$ {USUAL}   # the shim", "console"), "CUDA.md")

    assert found is not None
    assert (found.words, found.found_via, found.sources) == (SHIM_LINE, "CUDA.md:5", ("ffi/pjrt_ffi.c",))


def test_a_backslash_continues_it() -> None:
    found = documented_line(document("clang -shared \\\n  a.c b.c \\\n  -o out/libpjrt_ffi.so"), "CUDA.md")

    assert found is not None
    assert (found.sources, found.found_via) == (("a.c", "b.c"), "CUDA.md:5")


@pytest.mark.parametrize(
    "line", ["gcc -shared a.c -o libother.so", "gcc a.c -o libpjrt_ffi.so", "gcc -shared 'a.c", "echo"]
)
def test_another_line_is_not_it(line: str) -> None:
    assert documented_line(document(line), "CUDA.md") is None


def test_another_language_is_no_shell() -> None:
    assert documented_line(document(USUAL, "python"), "CUDA.md") is None


@pytest.mark.parametrize(
    "options",
    [
        "-fPIC -O3 -g -std=gnu11 -Wall -Wextra -march=native -pthread",
        "-Iffi -I../include -L/usr/lib -lm -DNAME=1 -Wl,-z,defs -Wl,-rpath,$ORIGIN -fvisibility=hidden",
    ],
)
def test_options_that_only_compile_are_taken(options: str) -> None:
    assert documented_line(document(f"gcc {options} -shared a.c -o libpjrt_ffi.so"), "CUDA.md") is not None


@pytest.mark.parametrize(
    "word",
    [
        *("-fplugin=./evil.so", "-B./evil", "-specs=evil", "-wrapper", "@more", "-Wl,-Map=ffi/map"),
        *("-save-temps", "-MD", "-MF", "-fdump-tree-all", "-Wp,-MD,x", "-Xlinker", "-include", "-o2=x"),
        *("../elsewhere.c", "/etc/passwd.c", "evil.so", "&&", ";", "$(touch x)", "`touch x`", "|", ">x"),
    ],
)
def test_a_word_that_does_more_is_refused_by_name(word: str) -> None:
    line = document(f"gcc -shared a.c '{word}' -o libpjrt_ffi.so")

    with pytest.raises(ProjectError, match=r"CUDA\.md:5: the shim's build line has ") as refusal:
        documented_line(line, "CUDA.md")
    assert repr(word) in str(refusal.value)


def test_a_compiler_of_the_checkouts_own_is_refused() -> None:
    with pytest.raises(ProjectError, match=r"begins with './gcc'; a compiler is one of gcc, cc, clang"):
        documented_line(document("./gcc -shared a.c -o libpjrt_ffi.so"), "CUDA.md")
