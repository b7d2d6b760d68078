"""A checkout and its build tree as they lie on disk; what is missing is a fact."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_cudaboot.probes.iree_tree import given, read_tree
from pytest_cudaboot.rules.iree_tree import ARCHIVES, tree_faults

ENV = {"PATH": os.defpath, "LANG": "C", "HOME": "/nonexistent"}
IDENTITY = ("-c", "user.name=n", "-c", "user.email=e@x")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *words],  # noqa: S607 - the one on the path, as the probe takes it
        cwd=folder,
        env=ENV,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkout that has the one header which tells it, committed."""
    header = tmp_path / "src/runtime/src/iree/runtime/api.h"
    header.parent.mkdir(parents=True)
    header.write_text("/* the runtime */\n")
    folder = tmp_path / "src"
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "all of it")
    return folder


@pytest.fixture
def build(tmp_path: Path, source: Path) -> Path:
    folder = tmp_path / "build"
    for name in ARCHIVES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"!<arch>\n")
    settings = f"IREE_HAL_DRIVER_CUDA:BOOL=ON\nCMAKE_HOME_DIRECTORY:INTERNAL={source}\n"
    (folder / "CMakeCache.txt").write_text(f"// A comment\n{settings}")
    return folder


def test_a_tree_is_read_and_found_fit(source: Path, build: Path) -> None:
    tree = read_tree(source, build, environ=ENV)

    assert tree.commit == git(source, "rev-parse", "HEAD")
    assert tree.modified is False
    assert tree_faults(tree) == ()


def test_a_change_to_the_checkout_is_a_fact(source: Path, build: Path) -> None:
    (source / "runtime/src/iree/runtime/api.h").write_text("/* another */\n")

    assert read_tree(source, build, environ=ENV).modified is True


@pytest.mark.parametrize("setting", ["core.fsmonitor", "filter.evil.clean"])
def test_what_its_git_would_run_is_not_run(source: Path, build: Path, tmp_path: Path, setting: str) -> None:
    mark = tmp_path / "ran"
    (source / ".git/info/attributes").write_text("*.h filter=evil\n")
    git(source, "config", setting, f"touch {mark}; cat")
    (source / "runtime/src/iree/runtime/api.h").write_text("/* another */\n")

    assert read_tree(source, build, environ=ENV).modified is True
    assert not mark.exists()


def test_an_archive_that_is_gone_is_a_fault(source: Path, build: Path) -> None:
    (build / ARCHIVES[0]).unlink()

    (fault,) = tree_faults(read_tree(source, build, environ=ENV))

    assert f"lacks {ARCHIVES[0]}" in fault


def test_a_folder_inside_another_checkout_has_no_commit(source: Path, build: Path) -> None:
    tree = read_tree(source / "runtime", build, environ=ENV)

    assert (tree.commit, tree.header) == (None, False)


def test_what_is_not_there_at_all_is_no_error(tmp_path: Path) -> None:
    tree = read_tree(tmp_path / "gone", tmp_path / "gone too", environ=ENV)

    assert (tree.commit, tree.modified, tree.cache, tree.archives, tree.header) == (
        None,
        None,
        None,
        (),
        False,
    )


@pytest.mark.parametrize("name", ["IREE_SRC", "IREE_BUILD"])
@pytest.mark.parametrize("value", [None, ""])
def test_both_variables_are_needed(name: str, value: str | None) -> None:
    environ = {"IREE_SRC": "/a", "IREE_BUILD": "/b"}
    assert given(environ) == (Path("/a"), Path("/b"))

    changed = (
        {**environ, name: value or ""} if value is not None else {k: environ[k] for k in environ if k != name}
    )

    assert given(changed) is None
