"""An IREE checkout and its build tree, as they lie on disk. It judges and builds nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_cudaboot.probes import git
from pytest_cudaboot.rules.iree_tree import ARCHIVES, TreeFacts, read_cache

GIT_BUDGET = 60.0  # the first look at a large checkout reads all of it
CACHE, HEADER = "CMakeCache.txt", "runtime/src/iree/runtime/api.h"


def given(environ: Mapping[str, str]) -> tuple[Path, Path] | None:
    """The checkout and the build tree that `IREE_SRC` and `IREE_BUILD` name; None if one of them is not set."""
    source, build = environ.get("IREE_SRC"), environ.get("IREE_BUILD")
    return (Path(source), Path(build)) if source and build else None


def read_tree(source: Path, build: Path, *, environ: Mapping[str, str]) -> TreeFacts:
    """What there is; what is not there is a fact too."""
    cache = build / CACHE
    changes = _git(
        source, environ, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"
    )
    return TreeFacts(
        source=str(source.resolve()),
        build=str(build.resolve()),
        commit=_head(source, environ),
        modified=None if changes is None else bool(changes),
        cache=read_cache(cache.read_text(errors="replace")) if cache.is_file() else None,
        archives=tuple(name for name in ARCHIVES if (build / name).is_file()),
        header=(source / HEADER).is_file(),
    )


def _head(source: Path, environ: Mapping[str, str]) -> str | None:
    """The commit that is checked out there; a folder inside somebody else's checkout has none."""
    top = _git(source, environ, "rev-parse", "--show-toplevel")
    if not top or Path(top) != source.resolve():
        return None
    return _git(source, environ, "rev-parse", "HEAD")


def _git(source: Path, environ: Mapping[str, str], *words: str) -> str | None:
    return git.ask(source, environ, *words, budget=GIT_BUDGET, any_owner=True)
