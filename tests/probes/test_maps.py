"""What is mapped, read from the kernel's text."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CudabootError
from pytest_cudaboot.probes.maps import SharedObject, by_name, parse_maps, resident_bytes, shared_objects

TEXT = """\
7f00-7f01 r--p 00000000 fe:00 11 /usr/lib/libcudnn.so.9.2
7f01-7f02 r-xp 00001000 fe:00 11 /usr/lib/libcudnn.so.9.2
7f02-7f03 r--p 00000000 fe:00 12 /a b/site-packages/libcudnn.so.9.2
7f03-7f04 r--p 00000000 fe:00 13 /builds/libpjrt_ffi.so (deleted)
7f04-7f05 rw-p 00000000 00:00 0
7f05-7f06 rw-p 00000000 00:00 0  [heap]
7f06-7f07 r--p 00000000 fe:00 14 /usr/bin/python3.11
7f08-7f09 r--p 00000000 fe:00 16 /usr/share/notes.so.txt/data
"""


def test_each_file_once_by_name_and_path() -> None:
    assert parse_maps(TEXT) == (
        SharedObject(name="libcudnn.so.9.2", path="/a b/site-packages/libcudnn.so.9.2"),
        SharedObject(name="libcudnn.so.9.2", path="/usr/lib/libcudnn.so.9.2"),
        SharedObject(name="libpjrt_ffi.so", path="/builds/libpjrt_ffi.so", deleted=True),
    )


def test_two_copies_of_a_library_are_seen() -> None:
    table = by_name(parse_maps(TEXT))

    assert table["libcudnn.so.9.2"] == ["/a b/site-packages/libcudnn.so.9.2", "/usr/lib/libcudnn.so.9.2"]


def test_a_library_that_was_replaced_under_us_is_marked(tmp_path: Path) -> None:
    copy = tmp_path / "libcopied here.so"
    shutil.copy(next(found.path for found in shared_objects() if found.name.startswith("libm.so")), copy)
    ctypes.CDLL(os.fspath(copy))
    before = next(found for found in shared_objects() if found.name == copy.name)
    copy.unlink()
    after = next(found for found in shared_objects() if found.name == copy.name)

    assert (before.path, before.deleted, after.path, after.deleted) == (str(copy), False, str(copy), True)


def test_a_process_that_is_gone_is_named() -> None:
    with pytest.raises(CudabootError, match="no process 4194304"):
        shared_objects(4194304)


def test_memory_is_in_bytes() -> None:
    now, peak = resident_bytes()

    assert 1 << 20 < now <= peak
