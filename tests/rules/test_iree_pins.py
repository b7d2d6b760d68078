"""The compiler's pin and its commit: the package's version counts for the one, the tool's word for the other."""

from __future__ import annotations

import pytest

from pytest_cudaboot.errors import PinnedVersionError, SkewError
from pytest_cudaboot.rules.iree_pins import (
    Said,
    find_pin,
    read_runtime_commit,
    read_said,
    require_pinned,
    require_same_commit,
)

COMMIT = "89ece87b89852100c0a4ac3d515e14842d090967"
SAID = f"IREE (https://iree.dev):\n  IREE compiler version 3.13.0rc20261016 @ {COMMIT}\n  LLVM version 24.0.0git\n"


def test_the_tool_says_a_build_and_a_commit() -> None:
    assert read_said(SAID) == Said(version="3.13.0rc20261016", commit=COMMIT)


@pytest.mark.parametrize("text", ["", "IREE compiler version 3.13.0", SAID.replace(COMMIT, "89ece87")])
def test_what_says_less_says_nothing(text: str) -> None:
    assert read_said(text) is None


def test_the_runtime_says_its_commit() -> None:
    assert read_runtime_commit(f'VERSION = "3.13.0"\nREVISIONS = {{"IREE": "{COMMIT}"}}\n') == COMMIT
    assert read_runtime_commit("REVISIONS = {}") is None


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        ("pip install 'iree-base-compiler>=3.12.0rc20260428'\niree-compile --version", ">=3.12.0rc20260428"),
        ("iree-base-compiler >= 3.12, <4  # the pin", ">=3.12,<4"),
        ("use `iree-base-compiler>=3.12` of the package iree-base-compiler", ">=3.12"),
        ("iree-base-compiler==3.13.0\niree-base-runtime==3.13.0", "==3.13.0"),
    ],
)
def test_a_pin_is_found_where_people_write_it(text: str, pin: str) -> None:
    assert find_pin(text) == f"iree-base-compiler{pin}"


def test_no_requirement_is_no_pin() -> None:
    assert find_pin("the compiler comes as iree-base-compiler, from PyPI") is None


def test_two_pins_that_differ_are_refused() -> None:
    with pytest.raises(
        PinnedVersionError, match=r"pinned in two ways: iree-base-compiler==3.12.0, iree-base-"
    ):
        find_pin("iree-base-compiler==3.13.0\niree-base-compiler==3.12.0\n")


@pytest.mark.parametrize("version", ["3.12.0rc20260428", "3.12.0", "3.13.0", "3.13.0rc20261016"])
def test_a_version_that_satisfies_the_pin(version: str) -> None:
    require_pinned(version, "iree-base-compiler>=3.12.0rc20260428")


@pytest.mark.parametrize("version", ["3.11.0", "3.12.0rc20260427", "3.9.0"])
def test_an_older_version_is_refused_with_the_command(version: str) -> None:
    words = rf"Step 2: iree-base-compiler {version} is not >=3.12.0rc20260428; .*`pip install 'iree-base-compiler>=3"
    with pytest.raises(PinnedVersionError, match=words):
        require_pinned(version, "iree-base-compiler>=3.12.0rc20260428")


@pytest.mark.parametrize(
    ("version", "pin"), [("latest", "iree-base-compiler>=3"), ("3.13.0", "iree-base-compiler>=x")]
)
def test_what_pep_440_does_not_know_is_refused(version: str, pin: str) -> None:
    with pytest.raises(PinnedVersionError, match=r"(?s)Step 2: .*pin '.*', version '"):
        require_pinned(version, pin)


def test_days_between_compiler_and_runtime_are_refused() -> None:
    require_same_commit(COMMIT, COMMIT)
    with pytest.raises(SkewError, match=f"compiler is of commit {COMMIT}, the runtime of 0{COMMIT[1:]}"):
        require_same_commit(COMMIT, f"0{COMMIT[1:]}")
