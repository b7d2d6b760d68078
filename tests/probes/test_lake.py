"""A private copy for lake: it follows the checkout, and nothing that is written in it lands there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cudaboot.errors import ToolMissingError
from pytest_cudaboot.probes import lake


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A checkout with a source, what must not be copied, and an empty copy."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    for folder in ("ffi", ".git", ".lake/build", "data", ".venv"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_text(folder)
    (root / "A.lean").write_text("one")
    (root / "ffi" / "old.so").touch()
    (root / "away").symlink_to(tmp_path)
    copy.mkdir()
    return root, copy


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_sources_are_copied_and_nothing_else(trees: tuple[Path, Path]) -> None:
    lake.mirror(*trees)

    assert names(trees[1]) == {"A.lean", "ffi/file"}


def test_the_copy_follows_and_keeps_what_was_built_in_it(trees: tuple[Path, Path]) -> None:
    root, copy = trees
    lake.mirror(root, copy)
    (copy / ".lake").mkdir()
    (copy / ".lake" / "own").touch()
    (root / "A.lean").write_text("two")
    (root / "ffi" / "file").unlink()

    lake.mirror(root, copy)

    assert ((copy / "A.lean").read_text(), names(copy)) == ("two", {"A.lean", ".lake/own"})


def test_what_the_checkout_has_built_is_taken_over_once(trees: tuple[Path, Path]) -> None:
    root, copy = trees

    assert lake.seed(root, copy)
    (root / ".lake" / "build" / "later").touch()
    assert lake.seed(root, copy)
    assert names(copy) == {".lake/build/file"}


def test_packages_that_lie_elsewhere_are_not(trees: tuple[Path, Path], tmp_path: Path) -> None:
    root, copy = trees
    (root / ".lake" / "packages").symlink_to(tmp_path)

    assert not lake.seed(root, copy)
    assert names(copy) == set()


def test_data_is_linked_and_what_is_added_stays_in_the_copy(trees: tuple[Path, Path]) -> None:
    root, copy = trees

    lake.linked(root / "data", copy / "data")
    lake.linked(root / "data", copy / "data")
    (copy / "data" / "cache").touch()

    assert (copy / "data" / "file").read_text() == "data"
    assert names(root / "data") == {"file"}


def test_a_result_is_recalled_only_whole_and_under_its_key(tmp_path: Path) -> None:
    assert lake.recall(tmp_path, "k") is None
    lake.keep(tmp_path, "k", {"seconds": 3})
    assert lake.recall(tmp_path, "k") == {"seconds": 3}

    written = json.loads((tmp_path / "k.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(written))
    (tmp_path / "k.json").write_text(json.dumps({**written, "facts": {"seconds": 4}}))
    (tmp_path / "cut.json").write_text('{"schema"')
    assert [lake.recall(tmp_path, key) for key in ("k", "other", "cut")] == [None, None, None]


def test_without_lake_the_miss_says_where_and_what_to_do(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "ELAN_HOME": str(tmp_path)}

    with pytest.raises(
        ToolMissingError, match=r"no lake, neither on PATH='.*' nor elan's; install elan: `curl"
    ):
        lake.require_lake(environ)
