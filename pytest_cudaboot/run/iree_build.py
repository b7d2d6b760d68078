"""The IREE shim in a run: whether there is one or a tree to build one from, and the fixtures that give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.errors import ProjectError
from pytest_cudaboot.lowerers.build import IREE_LINE, build_iree_shim, rebuild_command
from pytest_cudaboot.probes.iree_tree import given, read_tree
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_tree import TreeFacts, tree_faults
from pytest_cudaboot.run.worker import WORKER

SHIM, VARIABLES = "libiree_ffi.so", ("IREE_SRC", "IREE_BUILD")


def build_conditions(environ: Mapping[str, str], project: Project) -> dict[str, str | None]:
    """`iree-tree` where a build tree is named, `iree-build` there and where the project has a built shim."""
    unset = [name for name in VARIABLES if not environ.get(name)]
    tree = f"no IREE build tree, for want of {' and '.join(unset)}" if unset else None
    shim = None if (project.path / "ffi" / SHIM).is_file() else f"no ffi/{SHIM}; {tree}"
    return {"iree-tree": tree, "iree-build": None if tree is None else shim}


@dataclass(frozen=True, slots=True)
class IreeTree:
    """A checkout of IREE and its build tree, as facts, and what is to be done with them."""

    source: Path
    build: Path
    facts: TreeFacts

    @property
    def rebuild(self) -> str:
        """The command that builds the shim, to paste in the project's root."""
        return rebuild_command(self.source, self.build)


@pytest.fixture(scope="session")
def iree_tree(request: pytest.FixtureRequest) -> IreeTree:
    """The build tree that `IREE_SRC` and `IREE_BUILD` name, not judged yet."""
    environ = request.config.stash[WORKER].environ
    named = given(environ)
    if named is None:
        pytest.skip(f"no IREE build tree: set {' and '.join(VARIABLES)}")
    return IreeTree(*named, read_tree(*named, environ=environ))


@pytest.fixture(scope="session")
def built_iree_shim(project: Project, iree_tree: IreeTree, request: pytest.FixtureRequest) -> Path:
    """The IREE shim, built from the project's sources by Step 3's line, once its tree has been found fit."""
    from pytest_cudaboot.run.fixtures import builds

    faults = tree_faults(iree_tree.facts)
    if faults:
        raise ProjectError("\n".join(faults))
    environ = request.config.stash[WORKER].environ
    return build_iree_shim(project.path, builds(), iree_tree.source, iree_tree.build, env=environ)


@pytest.fixture(scope="session")
def given_iree_shim(project: Project) -> Path | None:
    """The built shim that lies in the project, if one does."""
    path = project.path / "ffi" / SHIM
    return path if path.is_file() else None


@pytest.fixture(scope="session")
def iree_shim(given_iree_shim: Path | None, request: pytest.FixtureRequest) -> Path:
    """The shim that is judged: the project's own as it lies there, else the one that its sources make."""
    if given_iree_shim is not None:
        return given_iree_shim
    built: Path = request.getfixturevalue("built_iree_shim")
    return built


@pytest.fixture(scope="session")
def iree_rebuild(request: pytest.FixtureRequest) -> str:
    """The command that builds the shim; without a tree it still has its variables, for a shell to fill in."""
    named = given(request.config.stash[WORKER].environ)
    return rebuild_command(*named) if named else " ".join(IREE_LINE)
