"""Where the dynamic loader would find a library for one file. It reads files only, and loads nothing."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.probes import elf

CACHE = Path("/etc/ld.so.cache")
DEFAULT_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20s2I20x")
_ENTRY = struct.Struct("<i2I12x")
_ELF_64 = b"\x7fELF\x02"


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A library that would be loaded.

    :param via: the part of the search that finds it.
    """

    path: Path
    via: str


class Loader:
    """The search of the dynamic loader on behalf of one shared object.

    :param requester: the object that asks; its own folders are named relative to the path that it is opened by.
    """

    def __init__(self, requester: Path, environ: Mapping[str, str], cache: Path = CACHE) -> None:
        origin = str(requester.absolute().parent)
        own = [
            folder.replace("$ORIGIN", origin).replace("${ORIGIN}", origin) for folder in elf.rpath(requester)
        ]
        named = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
        order = [(own, "RPATH"), (named, "LD_LIBRARY_PATH")]
        if elf.yields_to_environment(requester):
            order = [(named, "LD_LIBRARY_PATH"), (own, "RUNPATH")]
        self._folders = [(Path(folder), via) for folders, via in order for folder in dict.fromkeys(folders)]
        self._cache = read_cache(cache)

    def find(self, name: str) -> Library | None:
        """The file that `dlopen(name)` takes; one for another word size is passed over."""
        return next((found for found in self._places(name) if _is_64_bit(found.path)), None)

    def others(self, stem: str, but: str) -> list[Library]:
        """Other versions of a library that are within reach: `libcudart.so.13` where `.12` is missing."""
        beside = {path.name for folder, _ in self._folders for path in folder.glob(f"{stem}.so.*")}
        names = beside | {name for name in self._cache if name.startswith(f"{stem}.so.")}
        found = [self.find(name) for name in sorted(names - {but}) if name.count(".") == but.count(".")]
        return [library for library in found if library is not None]

    def _places(self, name: str) -> Iterator[Library]:
        for folder, via in self._folders:
            yield Library(path=folder / name, via=via)
        for path in self._cache.get(name, ()):
            yield Library(path=Path(path), via="ld.so.cache")
        for place in DEFAULT_FOLDERS:
            yield Library(path=Path(place, name), via="the loader's own folders")


def read_cache(path: Path = CACHE) -> dict[str, list[str]]:
    """What `ldconfig` has recorded: name to paths, in order. Empty where there is none, or of an unknown form."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    start = data.find(_MAGIC)  # an older form may come before the current one
    if start < 0:
        return {}
    data = data[start:]
    table: dict[str, list[str]] = {}
    try:
        _, count, _ = _HEADER.unpack_from(data)
        for number in range(count):
            _, key, value = _ENTRY.unpack_from(data, _HEADER.size + number * _ENTRY.size)
            table.setdefault(_text(data, key), []).append(_text(data, value))
    except (struct.error, ValueError):
        return {}
    return table


def _text(data: bytes, offset: int) -> str:
    return os.fsdecode(data[offset : data.index(b"\0", offset)])


def _is_64_bit(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_ELF_64)) == _ELF_64
    except OSError:
        return False
