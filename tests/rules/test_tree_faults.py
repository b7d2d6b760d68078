"""A build tree is judged before anything is linked from it; each refusal names step, value and fix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cudaboot.rules.iree_tree import (
    ARCHIVES,
    TreeFacts,
    commit_fault,
    read_cache,
    tree_faults,
    truth,
)

COMMIT, OTHER = "a" * 40, "b" * 40
CACHE = {
    "IREE_HAL_DRIVER_CUDA": "ON",
    "IREE_HAL_DRIVER_HIP": "OFF",
    "BUILD_SHARED_LIBS": "OFF",
    "IREE_ALLOCATOR_SYSTEM": "libc",
    "CMAKE_HOME_DIRECTORY": "/src",
}
FIT = TreeFacts(
    source="/src",
    build="/build",
    commit=COMMIT,
    modified=False,
    cache=CACHE,
    archives=ARCHIVES,
    header=True,
)


def test_a_fit_tree_has_no_fault() -> None:
    assert tree_faults(FIT) == ()


@pytest.mark.parametrize("name", ["IREE_HAL_DRIVER_HIP", "BUILD_SHARED_LIBS", "IREE_ALLOCATOR_SYSTEM"])
def test_what_is_not_in_the_cache_has_its_default(name: str) -> None:
    assert tree_faults(replace(FIT, cache={key: CACHE[key] for key in CACHE if key != name})) == ()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "IREE_HAL_DRIVER_CUDA",
            "OFF",
            "IREE_HAL_DRIVER_CUDA is 'OFF' in /build/CMakeCache.txt (the shim would have no driver for the card)",
        ),
        (
            "IREE_HAL_DRIVER_CUDA",
            "OFF",
            "configure with -DIREE_HAL_DRIVER_CUDA=ON and build again: `cmake --build",
        ),
        ("IREE_HAL_DRIVER_CUDA", "maybe", "IREE_HAL_DRIVER_CUDA is 'maybe'"),
        ("IREE_HAL_DRIVER_HIP", "1", "IREE_HAL_DRIVER_HIP is '1'"),
        ("BUILD_SHARED_LIBS", "yes", "configure with -DBUILD_SHARED_LIBS=OFF"),
        ("IREE_ALLOCATOR_SYSTEM", "mimalloc", "configure with -DIREE_ALLOCATOR_SYSTEM=libc"),
        (
            "CMAKE_HOME_DIRECTORY",
            "/elsewhere",
            "configured for the checkout '/elsewhere', not for IREE_SRC='/src'",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_its_fix(name: str, value: str, words: str) -> None:
    (fault,) = tree_faults(replace(FIT, cache={**CACHE, name: value}))

    assert fault.startswith("Step 3: ")
    assert words in fault


def test_an_absent_driver_is_said_to_be_not_set() -> None:
    (fault,) = tree_faults(replace(FIT, cache={"CMAKE_HOME_DIRECTORY": "/src"}))

    assert "IREE_HAL_DRIVER_CUDA is not set in" in fault


def test_missing_archives_are_named_in_one_fault() -> None:
    (fault,) = tree_faults(replace(FIT, archives=ARCHIVES[:1]))

    assert f"lacks {ARCHIVES[1]}, {ARCHIVES[2]}; build it: `cmake --build" in fault


def test_all_faults_are_told_at_once() -> None:
    assert len(tree_faults(replace(FIT, archives=(), cache={**CACHE, "IREE_HAL_DRIVER_HIP": "ON"}))) == 2


def test_a_folder_that_is_no_checkout_is_refused_by_its_variable() -> None:
    (fault,) = tree_faults(replace(FIT, header=False, cache=None))

    assert "IREE_SRC='/src' has no runtime/src/iree/runtime/api.h" in fault


def test_a_tree_that_was_not_configured_is_told_how() -> None:
    (fault,) = tree_faults(replace(FIT, cache=None))

    assert "IREE_BUILD='/build' has no CMakeCache.txt; configure it: `cmake -G Ninja" in fault


def test_the_compilers_commit_is_the_right_one() -> None:
    assert commit_fault(FIT, COMMIT) is None


@pytest.mark.parametrize(
    ("commit", "words"), [(OTHER, f"is of commit {OTHER}"), (None, "is no checkout that git knows")]
)
def test_another_commit_or_none_is_a_fault(commit: str | None, words: str) -> None:
    fault = commit_fault(replace(FIT, commit=commit), COMMIT)

    assert fault is not None
    assert f"{words}, the compiler of {COMMIT}; check out that commit" in fault


def test_a_cache_is_read_without_its_comments() -> None:
    text = (
        '// About it\n# too\n\nCMAKE_HOME_DIRECTORY:INTERNAL=/a=b\nX:BOOL=ON\n"Q:D":STRING=v\nno assignment\n'
    )

    assert read_cache(text) == {"CMAKE_HOME_DIRECTORY": "/a=b", "X": "ON", "Q": "v"}


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("ON", True),
        ("true", True),
        ("Y", True),
        ("off", False),
        ("X-NOTFOUND", False),
        (None, False),
        ("q", None),
    ],
)
def test_truth_is_cmakes(value: str | None, means: bool | None) -> None:  # noqa: FBT001 - the answer to be compared
    assert truth(value) is means
