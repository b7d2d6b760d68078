"""What a checkout under test is: its document, its sources, its nets, its data. It is only ever read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import ProjectError
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes import git
from pytest_cudaboot.probes.survey import Survey, fault, survey
from pytest_cudaboot.rules.build_line import SHIM, SHIM_LINE, BuildLine, documented_line
from pytest_cudaboot.rules.document import read_document

DOCUMENTS = ("CUDA.md", "BOOTSTRAP.md")
DOCUMENT_FOLDERS = (".", "docs", "historical")
FORWARD, STEP = "_fwd.mlir", "_train_step.mlir"
GIT_BUDGET = 20.0
HUGE = 1 << 62
UNIT = "ffi/pjrt_ffi.c"
IREE = "iree-base-compiler"
# What a shim has beyond the ABI, by a word of its sources: the conditions of scope that ask for it.
RENDERERS = ("nets/render.py", "data/coloured.py")
ABILITIES = {"describe": "pjrt_ffi_describe", "settings": "LEAN_MLIR_MEM_FRACTION"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A checkout.

    :param document: the bring-up document, or null where there is none.
    :param nets: names for which both a forward graph and a train step lie in `nets/`.
    :param survey: what else was looked for, and where.
    """

    path: Path
    name: str
    document: Path | None
    nets: tuple[str, ...]
    survey: Survey

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

    @property
    def artifacts(self) -> tuple[Path, ...]:
        """Every graph, the smallest first. Whether one keeps the artifact rules is for a spec to find out."""
        return self.survey.artifacts.paths

    @property
    def unproved(self) -> tuple[Path, ...]:
        """The graphs that no oracle of the checkout speaks for."""
        spoken = self.nets if self.survey.oracle.paths else ()
        known = {graph for net in spoken for graph in (self.forward(net), self.step(net))}
        return tuple(path for path in self.artifacts if path not in known)

    @property
    def build_line(self) -> BuildLine | None:
        """The line that builds the XLA shim: the document's, else the usual one where its source is there.

        :raises ProjectError: the document's does more than compile.
        """
        if self.document is not None:
            text = read_document(self.document)
            name = str(self.document.relative_to(self.path))
            if SHIM in text and (line := documented_line(text, name)) is not None:
                return line
        usual = self.path / UNIT in self.survey.sources.paths
        return BuildLine(words=SHIM_LINE, found_via="the usual line") if usual else None

    def conditions(self) -> dict[str, str | None]:
        """The conditions of scope that a checkout answers: None where one holds, else why not, in a few words."""
        parts = self.survey
        nets = parts.oracle.paths and self.nets
        shim = None if self.build_line else f"no line builds {SHIM}, and there is no {UNIT}"
        return {
            "document": None if self.document else f"no {' and no '.join(DOCUMENTS)}",
            "shim": shim,
            "header": None if parts.header.paths else "no ffi/iree_ffi.h",
            "trainer": shim or _no_trainer(parts),
            "oracle": None if nets else "no nets with an oracle, nets/oracle.py",
            "renderer": None if nets and _renders(self.path) else f"no {' and no '.join(RENDERERS)}",
            "graphs": None if self.artifacts else "no *.mlir",
            "artifacts": None if self.unproved else "no *.mlir without an oracle",
            "lean": None if parts.lakefile.paths else "no lakefile",
            "iree-pin": None if self._pins(IREE) else f"neither document nor lock file names {IREE}",
            **{name: self._ability(word) for name, word in ABILITIES.items()},
        }

    def _pins(self, package: str) -> bool:
        """Whether the document or a lock file names a package."""
        texts = [read_document(self.document)] if self.document is not None else []
        texts += [path.read_text(errors="replace") for path in self.survey.pins.paths]
        return any(package in text for text in texts)

    def _ability(self, word: str) -> str | None:
        """Whether a source of the shim's has a word; what a binary has is judged when it is there."""
        texts = (path.read_bytes() for path in self.survey.sources.paths)
        return None if any(word.encode() in text for text in texts) else f"no source in ffi/ has {word}"


def _renders(root: Path) -> bool:
    """Whether the checkout makes its own nets and its coloured images, as the reference does."""
    return all((root / name).is_file() for name in RENDERERS)


def _no_trainer(parts: Survey) -> str | None:
    """Why there is no trainer that takes the reference's words."""
    lacking = None if parts.trainer.paths else parts.trainer.tried[0]
    return f"no trainer of the reference's kind, for want of {lacking}" if lacking else None


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
        return _read(rootdir, printable(rootdir.name), document)
    return _reference()


def find_document(path: Path, wanted: str | None = None) -> Path | None:
    """The bring-up document of a checkout, or None.

    :raises ProjectError: what has its name is none, or lies elsewhere.
    """
    names = [wanted] if wanted else [f"{folder}/{name}" for folder in DOCUMENT_FOLDERS for name in DOCUMENTS]
    found = next((path / name for name in names if (path / name).is_file()), None)
    # Its size is the reader's to refuse.
    why = fault(path, found, HUGE) if found else None
    if why is not None:
        raise ProjectError(f"{found} {why}; a bring-up document is a file of its checkout")
    return found


def describe(project: Project, environ: Mapping[str, str]) -> Json:
    """The project's identity for the verdict: commit, dirtiness, and a hash of each artifact.

    A folder that lies in somebody else's checkout without being of it, such as an installed package, has no commit.
    """

    def say(*words: str) -> str | None:
        return git.ask(project.path, environ, *words, budget=GIT_BUDGET)

    tracked = bool(say("ls-files", "--", "ffi"))
    commit = say("rev-parse", "HEAD") if tracked else None
    changes = say("status", "--porcelain", "--ignore-submodules=all", "--", ".") if tracked else None
    return {
        "path": str(project.path),
        "name": project.name,
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
        "artifacts": {_short(project, path): sha256(path) for path in project.artifacts},
        "parts": {name: part.to_json(project.path) for name, part in project.survey.named().items()},
        "build_line": line.found_via if (line := project.build_line) else None,
        "refused": dict(project.survey.refused),
    }


def _short(project: Project, path: Path) -> str:
    """A graph's name in the verdict: of those in `nets/` the file's own."""
    return path.name if path.parent == project.path / "nets" else str(path.relative_to(project.path))


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
    root = path.resolve()
    return _read(root, printable(root.name), document)


def printable(name: str) -> str:
    """A name as a line can show it: whoever chose it may have put a line of his own into it."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)


def _read(path: Path, name: str, document: str | None) -> Project:
    if not (path / "ffi").resolve().is_relative_to(path.resolve()):
        raise ProjectError(f"{str(path)!r}: its ffi/ is a link out of the checkout")
    found = survey(path)
    names = [graph.name for graph in found.artifacts.paths if graph.parent == path / "nets"]
    steps = {graph.removesuffix(STEP) for graph in names if graph.endswith(STEP)}
    forwards = {graph.removesuffix(FORWARD) for graph in names if graph.endswith(FORWARD)}
    nets = tuple(sorted(steps & forwards))
    return Project(path=path, name=name, document=find_document(path, document), nets=nets, survey=found)
