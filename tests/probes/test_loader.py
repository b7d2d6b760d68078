"""The search of the dynamic loader, held against small libraries that gcc links, and against the loader itself."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest

from pytest_cudaboot.probes.loader import Library, Loader, read_cache

EMPTY = "int nothing;\n"
NAME = "libthing.so.12"


def link(path: Path, *words: str) -> Path:
    """A library without content, linked with some more words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(EMPTY)
    subprocess.run(["/usr/bin/env", "gcc", "-shared", "-fPIC", source, "-o", path, *words], check=True)
    return path


def asker(tmp_path: Path, *tags: str) -> Path:
    """A library that looks in `../nvidia/lib` beside itself."""
    return link(tmp_path / "plugins/asker.so", "-Wl,-rpath,$ORIGIN/../nvidia/lib", *tags)


def stored(tmp_path: Path, **table: Path) -> Path:
    """A record as ldconfig writes it, of `libthing.so.12` or another name with `_` for the dot."""
    strings, entries = b"", b""
    header = struct.pack("<20s2I20x", b"glibc-ld.so.cache1.1", len(table), 0)
    base = len(header) + 24 * len(table)
    for name, path in table.items():
        key, value = name.replace("_", ".").encode() + b"\0", str(path).encode() + b"\0"
        places = base + len(strings), base + len(strings) + len(key)
        entries += struct.pack("<i2I12x", 0x0303, *places)
        strings += key + value
    file = tmp_path / "ld.so.cache"
    file.write_bytes(header + entries + strings)
    return file


def search(requester: Path, cache: Path, **environ: str) -> Library | None:
    return Loader(requester, environ, cache).find(NAME)


@pytest.mark.parametrize(
    ("tags", "order"),
    [
        ("--disable-new-dtags", ["RPATH", "LD_LIBRARY_PATH", "ld.so.cache"]),
        ("--enable-new-dtags", ["LD_LIBRARY_PATH", "RUNPATH", "ld.so.cache"]),
    ],
)
def test_each_place_in_its_turn(tmp_path: Path, tags: str, order: list[str]) -> None:
    requester = asker(tmp_path, f"-Wl,{tags}")
    places = {
        "RPATH": link(tmp_path / "plugins/../nvidia/lib" / NAME),
        "LD_LIBRARY_PATH": link(tmp_path / "named" / NAME),
        "ld.so.cache": link(tmp_path / "system" / NAME),
    }
    places["RUNPATH"] = places["RPATH"]
    cache = stored(tmp_path, libthing_so_12=places["ld.so.cache"])
    for via in order:
        found = search(requester, cache, LD_LIBRARY_PATH=f"/gone:{tmp_path / 'named'}")
        assert found == Library(path=places[via], via=via)
        places[via].unlink()
    assert search(requester, cache, LD_LIBRARY_PATH=str(tmp_path / "named")) is None


def test_a_copy_of_the_plugin_elsewhere_finds_nothing_beside_it(tmp_path: Path) -> None:
    """`$ORIGIN` is where the file is opened, not where it came from."""
    requester = asker(tmp_path)
    link(tmp_path / "nvidia/lib" / NAME)
    moved = tmp_path / "elsewhere/deep/asker.so"
    moved.parent.mkdir(parents=True)
    moved.symlink_to(requester)

    assert search(requester, tmp_path / "none") is not None
    assert search(moved, tmp_path / "none") is None


def test_a_file_for_another_word_size_is_passed_over(tmp_path: Path) -> None:
    requester = asker(tmp_path)
    narrow = tmp_path / "nvidia/lib" / NAME
    narrow.parent.mkdir(parents=True)
    narrow.write_bytes(b"\x7fELF\x01" + bytes(60))
    wide = link(tmp_path / "named" / NAME)

    found = search(requester, tmp_path / "none", LD_LIBRARY_PATH=str(wide.parent))
    assert found == Library(path=wide, via="LD_LIBRARY_PATH")


def test_other_versions_within_reach(tmp_path: Path) -> None:
    requester = asker(tmp_path, "-Wl,--disable-new-dtags")
    beside = link(tmp_path / "plugins/../nvidia/lib/libthing.so.13")
    known = link(tmp_path / "system/libthing.so.11")
    link(tmp_path / "nvidia/lib/libthing.so.13.2.1")
    loader = Loader(requester, {}, stored(tmp_path, libthing_so_11=known))

    assert loader.others("libthing", NAME) == [
        Library(path=known, via="ld.so.cache"),
        Library(path=beside, via="RPATH"),
    ]


def test_this_machines_record_names_what_the_loader_takes() -> None:
    name = "libc.so.6"
    taken = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if name in line}
    ctypes.CDLL(name)

    assert {str(Path(path).resolve()) for path in read_cache()[name]} & {
        str(Path(p).resolve()) for p in taken
    }


@pytest.mark.parametrize("data", [b"", b"other", b"glibc-ld.so.cache1.1", b"x" * 100])
def test_a_record_of_an_unknown_form_is_empty(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "cache").write_bytes(data)

    assert read_cache(tmp_path / "cache") == {}
    assert read_cache(tmp_path / "none") == {}


def test_a_record_that_is_cut_off_is_empty(tmp_path: Path) -> None:
    file = stored(tmp_path, libthing_so_12=Path("/x"))
    file.write_bytes(file.read_bytes()[:-4])

    assert read_cache(file) == {}


def test_the_old_form_before_the_current_one(tmp_path: Path) -> None:
    file = stored(tmp_path, libthing_so_12=Path("/x"))
    file.write_bytes(b"ld.so-1.7.0\0" + bytes(20) + file.read_bytes())

    assert read_cache(file) == {NAME: ["/x"]}
