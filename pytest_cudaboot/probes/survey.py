"""What lies in a checkout: looked for by name and place, with every place that was tried. It runs nothing of it.

A file counts that is one, lies in the checkout, and is not larger than anybody would write by hand or by renderer; what
else has the right name is refused, by name, and never opened.
"""

from __future__ import annotations

import itertools
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_cudaboot.model import Json

ARTIFACT = ".mlir"
LARGEST_ARTIFACT = 64 << 20  # bytes: weights are inputs, so a graph's text stays far below
LARGEST_SOURCE = 4 << 20
DEPTH, FOLDERS = 4, 5000  # how far and how wide artifacts are looked for
PASSED_OVER = frozenset({"node_modules", "__pycache__", "build", "data"})
LAKEFILES = ("lakefile.lean", "lakefile.toml")
PINS = ("lean-toolchain", "lake-manifest.json", "requirements*.txt", "*/requirements*.txt", "*.lock")
SHOWN = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One thing that a checkout may have.

    :param paths: what was found, in the order of the search.
    :param found_via: how, in words; null where nothing was.
    :param tried: every place that was looked at.
    """

    paths: tuple[Path, ...] = ()
    found_via: str | None = None
    tried: tuple[str, ...] = ()

    def to_json(self, root: Path) -> Json:
        """As plain data, paths relative to the checkout; of many only the first are named."""
        shown = [os.path.relpath(path, root) for path in self.paths[:SHOWN]]
        return {
            "found": shown,
            "count": len(self.paths),
            "found_via": self.found_via,
            "tried": list(self.tried),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """Everything that was looked for.

    :param refused: pairs (path relative to the checkout, why): what has a name that counts and is no such file.
    """

    sources: Part
    header: Part
    trainer: Part
    oracle: Part
    artifacts: Part
    lakefile: Part
    pins: Part
    venv: Part
    trainers: Part
    refused: tuple[tuple[str, str], ...] = ()

    def named(self) -> dict[str, Part]:
        """The parts by their names."""
        return {name: part for name in Survey.__slots__ if isinstance(part := getattr(self, name), Part)}


def survey(root: Path) -> Survey:
    """Look through a checkout."""
    ffi = root / "ffi"
    artifacts, refused = _artifacts(root)
    return Survey(
        sources=_files(root, "ffi/**/*.[ch]", limit=LARGEST_SOURCE),
        header=_files(root, "ffi/iree_ffi.h"),
        trainer=_all_of(root, ("ffi/trainer.c", "data/train-images-idx3-ubyte")),
        oracle=_files(root, "nets/oracle.py"),
        artifacts=artifacts,
        lakefile=_files(root, *LAKEFILES),
        pins=_files(root, *PINS),
        venv=_files(root, ".venv/pyvenv.cfg", inside=False),
        trainers=_files(root, ".lake/build/bin/*"),
        refused=(*_refused(root, sorted(ffi.rglob("*.[ch]")), LARGEST_SOURCE), *refused),
    )


def fault(root: Path, path: Path, limit: int) -> str | None:
    """Why a path is not to be opened as a file of this checkout; None if it may be."""
    try:
        real = path.resolve(strict=True)
        found = real.stat()
    except (OSError, RuntimeError) as error:
        return f"can not be read: {getattr(error, 'strerror', None) or error}"
    if not real.is_relative_to(root.resolve()):
        return f"is a link out of the checkout, to {str(real)!r}"
    if not stat.S_ISREG(found.st_mode):
        return f"is {_kind(found.st_mode)}, and no file"
    return f"has {found.st_size} bytes; at most {limit}" if found.st_size > limit else None


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((word for test, word in kinds if test(mode)), "a device")


def _refused(root: Path, paths: Iterable[Path], limit: int) -> Iterator[tuple[str, str]]:
    for path in paths:
        if (why := fault(root, path, limit)) is not None:
            yield os.path.relpath(path, root), why


def _files(root: Path, *patterns: str, limit: int = LARGEST_ARTIFACT, inside: bool = True) -> Part:
    """Files by pattern; a virtual environment may lie elsewhere, so `inside` says whether a link out counts."""
    found = [path for pattern in patterns for path in sorted(root.glob(pattern))]
    kept = [path for path in found if (fault(root, path, limit) is None if inside else path.is_file())]
    return _part(kept, patterns)


def _all_of(root: Path, names: Sequence[str]) -> Part:
    """Several files that mean something together only; data may be linked from elsewhere."""
    lacking = [name for name in names if not (root / name).is_file()]
    return Part(tried=tuple(lacking)) if lacking else _part([root / name for name in names], names)


def _part(paths: Sequence[Path], tried: Sequence[str]) -> Part:
    via = ", ".join(tried) if paths else None
    return Part(paths=tuple(paths), found_via=via, tried=tuple(tried))


def _artifacts(root: Path) -> tuple[Part, tuple[tuple[str, str], ...]]:
    """Graphs of `nets/`, where it has some; else of every folder that has some. The smallest come first."""
    via, tried = "nets/", ("nets/", f"every folder down to {DEPTH} levels")
    found = _graphs_in(root / "nets")
    if not found:
        via, found = (
            "folders that hold *.mlir",
            [path for folder in _folders(root) for path in _graphs_in(folder)],
        )
    good = [path for path in found if fault(root, path, LARGEST_ARTIFACT) is None]
    good.sort(key=lambda path: (path.stat().st_size, path))
    part = Part(paths=tuple(good), found_via=via if good else None, tried=tried)
    return part, tuple(_refused(root, found, LARGEST_ARTIFACT))


def _graphs_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"*{ARTIFACT}") if not path.name.startswith("."))


def _folders(root: Path) -> Iterator[Path]:
    """Folders in which somebody would keep graphs; links to folders are not followed."""
    for place, folders, _ in itertools.islice(os.walk(root), FOLDERS):
        depth = len(Path(place).relative_to(root).parts)
        folders[:] = sorted(name for name in folders if name[0] != "." and name not in PASSED_OVER)
        if depth >= DEPTH:
            folders.clear()
        yield Path(place)
