"""Small looks at a machine: programs, room on disks, packages beside a file. Nothing is run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What is left where something will be written.

    :param purpose: what goes there.
    :param path: the folder, or the nearest one above it that exists.
    :param writable: whether this user may write there.
    """

    purpose: str
    path: Path
    free: int
    writable: bool


def program(name: str, environ: Mapping[str, str]) -> Path | None:
    """A program on PATH."""
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    return Path(found) if found else None


def lake(environ: Mapping[str, str]) -> Path | None:
    """Lean's build tool: on PATH, or where elan puts it and a shell that is not a login's does not look."""
    found = program("lake", environ) or _elan_home(environ) / "bin/lake"
    return found if found.is_file() else None


def lean_pin(project: Path, environ: Mapping[str, str]) -> str | None:
    """The Lean that a project pins, and whether elan has it; None if it pins none."""
    file = project / "lean-toolchain"
    if not file.is_file():
        return None
    pin = file.read_text(errors="replace").strip()
    folder = _elan_home(environ) / "toolchains" / pin.replace("/", "--").replace(":", "---")
    return f"{pin}, {'installed' if folder.is_dir() else 'fetched at the first call'}"


def room(purpose: str, path: Path) -> Room:
    """How much can be written to a folder that may not exist yet."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.is_dir())
    # What is reserved for root is not free for others.
    return Room(
        purpose=purpose,
        path=there,
        free=shutil.disk_usage(there).free,
        writable=os.access(there, os.W_OK | os.X_OK),
    )


def _elan_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("ELAN_HOME") or Path(environ.get("HOME", "/nonexistent"), ".elan"))


def package_folder(path: Path) -> Path | None:
    """The folder of Python packages that a file lies in."""
    names = {"site-packages", "dist-packages"}
    return next((folder for folder in path.absolute().parents if folder.name in names), None)


def packages(folder: Path) -> frozenset[str]:
    """Names of the packages in a folder, spelled as package indexes do."""
    return frozenset(
        info.name.partition("-")[0].lower().replace("_", "-") for info in folder.glob("*.dist-info")
    )
