"""Freshness is a matter of content: fresh, stale with the cure, or undecidable with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cudaboot.rules.freshness import Built, Freshness, judge_freshness

REBUILD = "gcc the-line"
MADE = Built(sha256="1", compilers=("GCC: 12",), exported=frozenset({"a", "b"}))


def test_the_same_bytes_are_fresh() -> None:
    assert judge_freshness("x.so", MADE, MADE, REBUILD).freshness is Freshness.FRESH


@pytest.mark.parametrize(
    ("exported", "words"),
    [({"a"}, "lacks b"), ({"a", "b", "c"}, "still has c"), ({"a", "c"}, "lacks b, still has c")],
)
@pytest.mark.parametrize("compiler", ["GCC: 12", "clang 14"])
def test_other_symbols_are_stale_whatever_compiled_them(
    exported: set[str], words: str, compiler: str
) -> None:
    have = Built(sha256="2", compilers=(compiler,), exported=frozenset(exported))

    judgement = judge_freshness("x.so", have, MADE, REBUILD)

    assert judgement.freshness is Freshness.STALE
    assert judgement.reason == f"Step 3: x.so is stale: {words}; rebuild it: {REBUILD}"


def test_other_code_of_the_same_compiler_is_stale() -> None:
    judgement = judge_freshness("x.so", replace(MADE, sha256="2"), MADE, REBUILD)

    assert judgement.freshness is Freshness.STALE
    assert "its code is not what its sources make with the same compiler; rebuild it" in judgement.reason


@pytest.mark.parametrize(("compilers", "words"), [(("clang 14",), "clang 14"), ((), "no compiler's name")])
def test_another_compiler_makes_it_undecidable(compilers: tuple[str, ...], words: str) -> None:
    judgement = judge_freshness("x.so", replace(MADE, sha256="2", compilers=compilers), MADE, REBUILD)

    assert judgement.freshness is Freshness.UNDECIDABLE
    assert f"it was built by {words}" in judgement.reason
    assert "here is GCC: 12" in judgement.reason


def test_without_a_tree_it_is_undecidable() -> None:
    judgement = judge_freshness("x.so", MADE, None, REBUILD)

    assert judgement.freshness is Freshness.UNDECIDABLE
    assert "there is no build tree" in judgement.reason
