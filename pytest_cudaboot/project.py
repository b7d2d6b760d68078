"""What a checkout under test is: its document, its sources, its nets, its data. It is only ever read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import CommandError, ProjectError, ToolMissingError
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes.process import run_command

DOCUMENTS = ("CUDA.md", "BOOTSTRAP.md")
DOCUMENT_FOLDERS = (".", "docs", "historical")
FORWARD, STEP = "_fwd.mlir", "_train_step.mlir"
GIT_BUDGET = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A checkout.

    :param document: the bring-up document, or null where there is none.
    :param nets: names for which both a forward graph and a train step lie in `nets/`.
    """

    path: Path
    name: str
    document: Path | None
    nets: tuple[str, ...]

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def oracles(self) -> Path:
        return self.path / "nets" / "oracle.py"

    def forward(self, net: str) -> Path:
        return self.path / "nets" / f"{net}{FORWARD}"

    def step(self, net: str) -> Path:
        return self.path / "nets" / f"{net}{STEP}"


def suite_root() -> Path:
    """Where `acceptance/` and `fixtures/` lie: inside an installed package, at the top of a clone."""
    package = Path(__file__).resolve().parent
    installed = package / "_suite"
    return installed if (installed / "acceptance").is_dir() else package.parent


def find_project(wanted: str | None, rootdir: Path, document: str | None = None) -> Project:
    """The project named by `--cudaboot-project`, else the rootdir if it is one, else the reference.

    :raises ProjectError: if the directory named is not a project.
    """
    if wanted == "reference":
        return _reference()
    if wanted is not None:
        return _named(Path(wanted), document)
    if find_document(rootdir, document) and (rootdir / "ffi").is_dir():
        return _read(rootdir, rootdir.name, document)
    return _reference()


def find_document(path: Path, wanted: str | None = None) -> Path | None:
    """The bring-up document of a checkout, or None."""
    if wanted:
        return path / wanted if (path / wanted).is_file() else None
    places = (path / folder / name for folder in DOCUMENT_FOLDERS for name in DOCUMENTS)
    return next((place for place in places if place.is_file()), None)


def describe(project: Project, environ: Mapping[str, str]) -> Json:
    """The project's identity for the verdict: commit, dirtiness, and a hash of each artifact.

    A folder that lies in somebody else's checkout without being of it, such as an installed package, has no commit.
    """
    tracked = bool(_git(project.path, environ, "ls-files", "--", "ffi"))
    commit = _git(project.path, environ, "rev-parse", "HEAD") if tracked else None
    changes = _git(project.path, environ, "status", "--porcelain", "--", ".") if tracked else None
    return {
        "path": str(project.path),
        "name": project.name,
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
        "artifacts": {path.name: sha256(path) for path in _artifacts(project.path)},
    }


def sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _reference() -> Project:
    return _read(suite_root() / "fixtures" / "reference", "reference", None)


def _named(path: Path, document: str | None) -> Project:
    if not path.is_dir():
        raise ProjectError(f"--cudaboot-project {str(path)!r} is not a directory")
    if not (path / "ffi").is_dir():
        raise ProjectError(
            f"--cudaboot-project {str(path)!r} has no ffi/; name a checkout that has one, or `reference`"
        )
    return _read(path.resolve(), path.resolve().name, document)


def _read(path: Path, name: str, document: str | None) -> Project:
    steps = {
        artifact.name.removesuffix(STEP) for artifact in _artifacts(path) if artifact.name.endswith(STEP)
    }
    forwards = {a.name.removesuffix(FORWARD) for a in _artifacts(path) if a.name.endswith(FORWARD)}
    nets = tuple(sorted(steps & forwards))
    return Project(path=path, name=name, document=find_document(path, document), nets=nets)


def _artifacts(path: Path) -> Iterator[Path]:
    return iter(sorted((path / "nets").glob("*.mlir")))


def _git(path: Path, environ: Mapping[str, str], *words: str) -> str | None:
    """What git says, or None where the project is no checkout or there is no git."""
    # Without these, `git status` writes what it learned into the checkout's index.
    question = ["git", "--no-optional-locks", *words]
    try:
        return run_command(question, cwd=path, env=environ, budget=GIT_BUDGET).stdout.strip()
    except (CommandError, ToolMissingError):
        return None
