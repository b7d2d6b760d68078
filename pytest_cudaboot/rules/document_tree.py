"""The checkout around a document, as its rules look at it: bounded, no link followed, nothing run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

SKIPPED = (".git", ".venv", ".lake", ".tox", "node_modules", "build", "__pycache__", "site-packages")
SOURCES = (".c", ".h", ".cc", ".cpp", ".cu", ".lean", ".py", ".sh", ".bash", ".cmake", ".mk", ".rs")
SCRIPTS = (".sh", ".bash", ".py", ".conf", ".toml", ".ini", ".yml", ".yaml", ".md")
MOST_FILES = 20_000
LARGEST = 512 << 10  # bytes: what is larger is data


@dataclass(slots=True)
class Tree:
    """The files below a folder; each is read at most once."""

    root: Path
    _names: tuple[str, ...] | None = None
    _texts: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Relative paths, in order."""
        if self._names is None:
            self._names = tuple(sorted(_walk(self.root)))
        return self._names

    def of(self, suffixes: tuple[str, ...]) -> list[str]:
        """The files with one of these endings."""
        return [name for name in self.names if name.endswith(suffixes)]

    def text(self, name: str) -> str:
        """The words of a file; of one that is data, none."""
        if name not in self._texts:
            path = self.root / name
            large = path.stat().st_size > LARGEST
            self._texts[name] = "" if large else path.read_text(encoding="utf-8", errors="replace")
        return self._texts[name]

    def find(self, wanted: str) -> str | None:
        """The file of that path, or the only one whose path ends so."""
        if wanted in self.names:
            return wanted
        parts = PurePosixPath(wanted).parts
        found = [name for name in self.names if PurePosixPath(name).parts[-len(parts) :] == parts]
        return found[0] if len(found) == 1 else None

    def mentions(self, words: str, names: list[str]) -> Iterator[tuple[str, int, str]]:
        """Files, lines and their words where something stands as a whole word; the first line of each file."""
        pattern = re.compile(rf"(?<!\w){re.escape(words)}(?!\w)")
        for name in names:
            match = pattern.search(self.text(name))
            if match is not None:
                line = self.text(name).count("\n", 0, match.start()) + 1
                yield name, line, self.text(name).splitlines()[line - 1].strip()


def _walk(root: Path) -> Iterator[str]:
    left = MOST_FILES
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".cudaboot")]
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file():
                left -= 1
                if left < 0:
                    return
                yield path.relative_to(root).as_posix()
