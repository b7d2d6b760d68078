"""Compiled modules, kept by what they were made of: filled once under a lock, checked at every read. It compiles nothing.

An entry is a folder named by its key, with the module, and a manifest that says the key's parts and the module's hash.
Times decide nothing. What is not whole is a miss that says why, and is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from pytest_cudaboot.errors import CompileError
from pytest_cudaboot.model import Json, to_json
from pytest_cudaboot.probes.patience import alone

VARIABLE = "CUDABOOT_MODULE_CACHE"
MODULE, MANIFEST = "module.vmfb", "manifest.json"
SCHEMA = "cudaboot-module/1"
PATIENCE = 1200.0  # seconds for somebody else's compile of the same module; his lock goes with him if he dies


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleKey:
    """Everything that a compiled module depends on.

    :param mlir: hash of the graph's bytes.
    :param chip: what it is compiled for, within the backend.
    :param version: of the compiler's package; `commit` is what the compiler says itself.
    """

    mlir: str
    backend: str
    chip: str
    flags: tuple[str, ...]
    version: str
    commit: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(to_json(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A module that is there, whole.

    :param facts: what was written down when it was made: argv, seconds.
    :param made: whether it was made just now, rather than found.
    """

    path: Path
    key: ModuleKey
    sha256: str
    facts: Json = field(default_factory=dict)
    made: bool = False


@dataclass(frozen=True, slots=True)
class Miss:
    """Why there is no module under a key."""

    why: str


def default_folder(environ: Mapping[str, str]) -> Path:
    """The folder of this user's runs; `CUDABOOT_MODULE_CACHE` names another, such as one that travelled with a run."""
    named = environ.get(VARIABLE)
    return Path(named) if named else platformdirs.user_cache_path("cudaboot") / "modules"


class ModuleStore:
    """A folder of modules, shared by whoever can read it. It is made when the first module is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: ModuleKey) -> Stored | Miss:
        """The module under a key, after its hash was compared with the one that was written when it was made."""
        return self._read(self.folder / key.digest)

    def fill(self, key: ModuleKey, make: Callable[[Path], Json], *, patience: float = PATIENCE) -> Stored:
        """The module under a key; made if it is not there, by one process at a time.

        :param make: writes the module to the path that it is given and returns facts to keep beside it. If it
            raises, nothing is kept.
        :raises CompileError: the folder can not be written.
        :raises BusyError: somebody else has not finished within `patience`.
        """
        found = self.find(key)
        if isinstance(found, Stored):
            return found
        try:
            with self._lock(key, patience):
                found = self.find(key)
                return found if isinstance(found, Stored) else self._make(key, make)
        except OSError as error:
            raise CompileError(
                f"no module can be kept in {self.folder} ({error}), and it has none under its key ({found}); "
                f"name a folder that can be written with {VARIABLE}"
            ) from error

    def entries(self) -> Iterator[Stored]:
        """Every whole module."""
        if self.folder.is_dir():
            for place in sorted(self.folder.iterdir()):
                if isinstance(found := self._read(place), Stored):
                    yield found

    def _lock(self, key: ModuleKey, patience: float) -> AbstractContextManager[object]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return alone(self.folder / f"{key.digest}.lock", patience, f"making {key.digest}")

    def _make(self, key: ModuleKey, make: Callable[[Path], Json]) -> Stored:
        entry = self.folder / key.digest
        partial = self.folder / f"{key.digest}.partial"
        # Whoever was killed here left a folder; the lock says that nobody is at work in it.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            facts = make(partial / MODULE)
            sha256 = _sha256(partial / MODULE)
            manifest = {"schema": SCHEMA, "key": to_json(key), "sha256": sha256, "facts": facts}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
            _flush(partial / MODULE, partial / MANIFEST)
            shutil.rmtree(entry, ignore_errors=True)
            partial.rename(entry)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return Stored(path=entry / MODULE, key=key, sha256=sha256, facts=facts, made=True)

    def _read(self, entry: Path) -> Stored | Miss:
        try:
            written = json.loads((entry / MANIFEST).read_text())
            key = _key(written["key"])
            sha256, facts = str(written["sha256"]), dict(written["facts"])
            found = _sha256(entry / MODULE)
        except FileNotFoundError:
            return Miss(f"nothing is kept under {entry.name}")
        except (OSError, ValueError, TypeError, KeyError) as error:
            return Miss(f"{entry} is spoilt: {type(error).__name__}: {error}")
        if key.digest != entry.name:
            return Miss(f"{entry} is spoilt: its manifest is of {key.digest}")
        if found != sha256:
            return Miss(f"{entry / MODULE} is spoilt: its hash is {found}, and was {sha256} when it was made")
        return Stored(path=entry / MODULE, key=key, sha256=sha256, facts=facts)


def _key(data: Mapping[str, object]) -> ModuleKey:
    flags = data["flags"]
    if not isinstance(flags, list):
        raise TypeError(f"flags are {flags!r}")
    words = {name: str(data[name]) for name in ("mlir", "backend", "chip", "version", "commit")}
    return ModuleKey(flags=tuple(map(str, flags)), **words)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _flush(*paths: Path) -> None:
    """On the disk before the folder gets its name: a machine that loses power must not keep a name without bytes."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
