"""What a shim's symbols say, and what they can not."""

from __future__ import annotations

import re

import pytest

from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.shim_symbols import (
    REQUIRED,
    declared,
    defined,
    driver_fault,
    drivers,
    included,
    missing,
    stale_fault,
)

CUDA, HIP = "iree_hal_cuda_driver_module_register", "iree_hal_hip_driver_module_register"
REBUILD = "gcc the-line"
FFI = suite_root() / "fixtures" / "reference" / "ffi"
TEXTS = {path.name: path.read_text() for path in FFI.glob("*.[ch]")}


def test_ten_symbols_are_enough() -> None:
    assert missing([*REQUIRED, "and_more"]) == ()
    assert stale_fault("x.so", REQUIRED, REBUILD) is None


@pytest.mark.parametrize("name", REQUIRED)
def test_each_of_the_ten_is_missed_by_name_and_the_cure_comes_last(name: str) -> None:
    fault = stale_fault("x.so", [one for one in REQUIRED if one != name], REBUILD)

    assert fault == f"Step 3: x.so is stale: it lacks {name}; rebuild it: {REBUILD}"


@pytest.mark.parametrize("letter", ["t", "T"])
def test_a_driver_may_be_local_or_global(letter: str) -> None:
    assert drivers([(CUDA, letter), ("main", "T")]) == frozenset({"cuda"})


def test_other_symbols_are_no_drivers() -> None:
    assert drivers([("iree_hal_module_register_all_types", "t"), (f"{CUDA}_v2", "t")]) == frozenset()


def test_a_stripped_file_says_nothing_and_is_not_called_wrong() -> None:
    assert drivers(None) is None
    assert driver_fault("x.so", None, REBUILD) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"hip", "local_task"}, "its HAL drivers: hip, local_task (built with -DUSE_HIP"),
        ({"local_task"}, "its HAL drivers: local_task (from a tree with CUDA off?)"),
        (set(), "its HAL drivers: none (from a tree with CUDA off?)"),
    ],
)
def test_without_the_cuda_driver_it_is_refused_with_what_it_has(found: set[str], words: str) -> None:
    fault = driver_fault("x.so", found, REBUILD)

    assert fault is not None
    assert words in fault
    assert fault.endswith(f"IREE_HAL_DRIVER_CUDA=ON: {REBUILD}")


def test_both_drivers_are_no_fault() -> None:
    assert driver_fault("x.so", drivers([(CUDA, "t"), (HIP, "t")]), REBUILD) is None


def test_a_comment_declares_nothing() -> None:
    assert declared("/* int iree_ffi_a(void); */\n// int iree_ffi_b(void);\nint iree_ffi_c(int x);\n") == {
        "iree_ffi_c"
    }


def test_a_call_or_a_declaration_is_no_definition() -> None:
    text = "int iree_ffi_a(void);\nint iree_ffi_b(int x,\n  int y) {\n  return iree_ffi_a();\n}\n"

    assert defined([text]) == {"iree_ffi_b"}


def test_a_unit_is_what_it_includes_among_what_is_there() -> None:
    texts = {
        "a.c": '#include "b.c"\n#include <c.c>\n',
        "b.c": '#include "a.c"\n#include "gone.h"\n',
        "c.c": "",
    }

    assert included("a.c", texts) == {"a.c", "b.c"}


@pytest.mark.parametrize("unit", ["iree_ffi.c", "pjrt_ffi.c"])
def test_the_reference_defines_the_ten_in_each_unit(unit: str) -> None:
    made = defined(TEXTS[name] for name in included(unit, TEXTS))

    assert set(REQUIRED) <= made <= declared(TEXTS["iree_ffi.h"])


def test_the_reference_asks_a_shim_for_the_same_ten_at_run_time() -> None:
    asked = re.findall(r'^ *"(iree_ffi_\w+)",$', TEXTS["lowerer.c"], re.MULTILINE)

    assert tuple(asked) == REQUIRED
