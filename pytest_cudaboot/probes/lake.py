"""Lean's build tool and a private copy of a checkout for it; the checkout itself is only ever read.

A lakefile is a program, so nothing here looks into one: `lake` runs where a spec runs it, in the copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import ToolMissingError
from pytest_cudaboot.probes.health import lake
from pytest_cudaboot.probes.survey import LAKEFILES, LARGEST_ARTIFACT, fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_cudaboot.model import Json

FIX = "install elan: `curl -sSf https://elan.lean-lang.org/elan-init.sh | sh`, and open a new shell"
TOOLCHAIN, MANIFEST = "lean-toolchain", "lake-manifest.json"
PRIVATE = ".lake"
NOT_COPIED = frozenset({".git", PRIVATE, "data", "__pycache__", "node_modules"})
SCHEMA = "cudaboot-proof/1"


def require_lake(environ: Mapping[str, str]) -> Path:
    """The program.

    :raises ToolMissingError: there is none; the message says where was looked and what to do.
    """
    found = lake(environ)
    if found is None:
        raise ToolMissingError(
            f"no lake, neither on PATH={environ.get('PATH', os.defpath)!r} nor elan's; {FIX}"
        )
    return found


def sources(root: Path) -> Iterator[Path]:
    """The files of a checkout that a build may read, relative to it; links out of it and huge files are left out."""
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_COPIED and not name.startswith(".venv")]
        for name in names:
            path = Path(place, name)
            if path.suffix != ".so" and fault(root, path, LARGEST_ARTIFACT) is None:
                yield path.relative_to(root)


def proof_files(root: Path) -> dict[str, bytes]:
    """What a proof's result depends on, by name."""
    fixed = {TOOLCHAIN, MANIFEST, *LAKEFILES}
    wanted = [path for path in sources(root) if path.suffix == ".lean" or str(path) in fixed]
    return {str(path): (root / path).read_bytes() for path in wanted}


def mirror(root: Path, copy: Path) -> None:
    """Make the copy's files those of the checkout; what lake has built there stays, since it goes by content."""
    wanted = set(sources(root))
    for path in wanted:
        target, data = copy / path, (root / path).read_bytes()
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod((root / path).stat().st_mode & 0o777 | 0o600)
    for stale in [path for path in sources(copy) if path not in wanted]:
        (copy / stale).unlink()


def seed(root: Path, copy: Path) -> bool:
    """Take over what the checkout has built, where there is room and nothing in it leads elsewhere.

    :returns: whether the copy has packages of its own now.
    """
    built, own = root / PRIVATE, copy / PRIVATE
    if own.is_dir() or not built.is_dir():
        return own.is_dir()
    # A link would have lake write through the copy.
    if any(path.is_symlink() for path in (built, *built.glob("*"), *built.glob("packages/*"))):
        return False
    size = sum(path.lstat().st_size for path in built.rglob("*"))
    if shutil.disk_usage(copy).free < 2 * size:
        return False
    shutil.copytree(built, own, symlinks=True)
    return True


def linked(folder: Path, into: Path) -> None:
    """A folder of data as private folders of links: what a program adds stays in the copy."""
    for place, _, names in os.walk(folder, followlinks=True):
        target = into / Path(place).relative_to(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not (target / name).is_symlink():
                (target / name).symlink_to(Path(place, name).resolve())


def recall(folder: Path, key: str) -> Json | None:
    """The result that was kept under a key; None if there is none, or it is not what was written."""
    try:
        kept: Json = json.loads((folder / f"{key}.json").read_text())
        facts: Json = kept["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return facts if kept.get("schema") == SCHEMA and kept.get("seal") == _seal(key, facts) else None


def keep(folder: Path, key: str, facts: Json) -> None:
    """Remember a result; another process sees it whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{key}.{os.getpid()}.draft"
    draft.write_text(json.dumps({"schema": SCHEMA, "seal": _seal(key, facts), "facts": facts}, indent=1))
    draft.replace(folder / f"{key}.json")


def _seal(key: str, facts: Json) -> str:
    return hashlib.sha256(f"{key}\0{json.dumps(facts, sort_keys=True)}".encode()).hexdigest()
