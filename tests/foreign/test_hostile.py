"""A checkout that means ill is refused in clear words, or does no harm; none of its code runs because it was looked at."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.errors import DocumentError, ProjectError
from pytest_cudaboot.project import Project, describe, find_project
from tests.foreign.checkout import fingerprint, make, write
from tests.foreign.test_foreign_run import GRAPHS_ONLY, judged
from tests.run.gate import Gate

ENVIRON = {"PATH": os.defpath, "HOME": "/nonexistent"}
NAMES = ["a b", "new\nline", 'it\'s "quoted"', "$(touch ran)", "`touch ran`", "-rf", "a;b&c|d", "ü*?[x]"]


def found(root: Path) -> Project:
    return find_project(str(root), root)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_only_a_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / name)
    monkeypatch.chdir(tmp_path)

    project = find_project(name, tmp_path)

    assert (project.path, len(project.artifacts)) == (tmp_path / name, 3)
    assert describe(project, ENVIRON)["commit"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_a_name_can_not_write_a_line_of_the_report(tmp_path: Path) -> None:
    make(tmp_path / "x\naccept · reference · 99 specs hold")

    assert found(next(tmp_path.iterdir())).name == r"x\naccept · reference · 99 specs hold"


def test_a_run_in_a_hostile_name_ends_as_any_other(suite: Callable[..., Gate], tmp_path: Path) -> None:
    gate = suite(*GRAPHS_ONLY)
    checkout = make(tmp_path / "-$(touch ran)\n'\"")
    before = fingerprint(checkout)

    result = gate.here(f"--cudaboot-project={checkout}", "--cudaboot-lowerers", "xla")

    assert (result.ret, gate.verdict["verdict"], fingerprint(checkout)) == (0, "accept", before)
    assert list(gate.path.rglob("ran")) == []


def test_a_document_elsewhere_is_refused(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("# Secret\n")
    (foreign / "CUDA.md").symlink_to(tmp_path / "secret")

    with pytest.raises(ProjectError, match=r"CUDA\.md is a link out of the checkout, to '.*secret'"):
        found(foreign)


def test_sources_elsewhere_are_refused(foreign: Path, tmp_path: Path) -> None:
    (foreign / "ffi").rename(tmp_path / "ffi")
    (foreign / "ffi").symlink_to(tmp_path / "ffi")

    with pytest.raises(ProjectError, match="its ffi/ is a link out of the checkout"):
        found(foreign)
    with pytest.raises(ProjectError, match="its ffi/ is a link out of the checkout"):
        find_project(None, foreign)


def test_a_rootdir_with_document_and_sources_is_the_project(foreign: Path) -> None:
    assert find_project(None, foreign) == found(foreign)


def test_a_file_that_is_none_of_its_own_is_named_and_never_opened(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.mlir").write_text("secret")
    (foreign / "renders" / "out.mlir").symlink_to(tmp_path / "secret.mlir")
    (foreign / "renders" / "gone.mlir").symlink_to("nowhere")
    (foreign / "renders" / "round.mlir").symlink_to("round.mlir")
    os.mkfifo(foreign / "renders" / "pipe.mlir")
    (foreign / "renders" / "folder.mlir").mkdir()
    (foreign / "ffi" / "device.h").symlink_to("/dev/zero")

    project = found(foreign)

    assert [path.name for path in project.artifacts] == ["counts.mlir", "affine_fwd.mlir", "affine_sgd.mlir"]
    refused = dict(project.survey.refused)
    assert refused["renders/pipe.mlir"] == "is a pipe, and no file"
    assert refused["renders/folder.mlir"] == "is a folder, and no file"
    assert refused["renders/out.mlir"].startswith("is a link out of the checkout, to '")
    assert refused["renders/gone.mlir"] == "can not be read: No such file or directory"
    assert "renders/round.mlir" in refused
    assert refused["ffi/device.h"] == "is a link out of the checkout, to '/dev/zero'"
    assert describe(project, ENVIRON)["refused"] == refused


def test_a_huge_document_is_refused_by_its_size(foreign: Path) -> None:
    with (foreign / "CUDA.md").open("wb") as file:
        file.truncate(100 << 20)

    with pytest.raises(
        DocumentError, match=r"CUDA\.md: 104857600 bytes is too large for a bring-up document"
    ):
        found(foreign).conditions()


def test_a_run_over_it_is_a_usage_error(suite: Callable[..., Gate], foreign: Path) -> None:
    gate = suite(*GRAPHS_ONLY)
    with (foreign / "CUDA.md").open("wb") as file:
        file.truncate(100 << 20)

    assert judged(gate, foreign).ret == 4
    assert "is too large for a bring-up document; at most" in gate.verdict["reasons"][0]


def test_a_huge_graph_is_refused_by_its_size(foreign: Path) -> None:
    with (foreign / "renders" / "huge.mlir").open("wb") as file:
        file.truncate(100 << 20)

    assert found(foreign).survey.refused == (("renders/huge.mlir", "has 104857600 bytes; at most 67108864"),)


def test_garbage_for_a_graph_is_broken_by_name(suite: Callable[..., Gate], foreign: Path) -> None:
    gate = suite(*GRAPHS_ONLY)
    (foreign / "renders" / "garbage.mlir").write_bytes(bytes(range(256)) * 8)
    os.mkfifo(foreign / "renders" / "pipe.mlir")

    result = judged(gate, foreign, "--cudaboot-lowerers", "xla")

    cell = gate.cells["artifacts.rules"]
    assert (result.ret, cell["outcome"]) == (1, "broken")
    assert cell["evidence"]["refused"] == {"renders/pipe.mlir": "is a pipe, and no file"}
    assert "is not StableHLO text" in cell["evidence"]["other_than_artifacts"]["renders/garbage.mlir"]
    assert gate.outcomes["artifacts.runs"] == "holds"


EVIL = "from pathlib import Path\nPath({mark!r}).touch()\n"


def test_no_code_of_a_checkout_runs_because_it_was_named(
    suite: Callable[..., Gate], foreign: Path, tmp_path: Path
) -> None:
    """Its conftest, ini file, plugin, lakefile and shell hooks all would leave a mark."""
    gate, mark = suite(*GRAPHS_ONLY), tmp_path / "ran"
    for name in ("conftest.py", "evil.py", "sitecustomize.py", "test_evil.py"):
        write(foreign / name, EVIL.format(mark=str(mark)))
    write(foreign / "pytest.ini", "[pytest]\npythonpath = .\n")
    write(foreign / "lakefile.lean", f'#eval IO.FS.writeFile "{mark}" ""\n')
    write(foreign / "lean-toolchain", "leanprover/lean4:v4.0.0\n")

    result = gate.away("--cudaboot-project", str(foreign), "--cudaboot-lowerers", "xla")

    assert not mark.exists()
    assert result.ret == 0


@pytest.mark.parametrize("setting", ["core.fsmonitor", "filter.evil.clean", "filter.evil.process"])
def test_what_a_checkouts_git_would_run_is_not_run(foreign: Path, tmp_path: Path, setting: str) -> None:
    mark = tmp_path / "ran"
    write(foreign / ".gitattributes", "*.c filter=evil\n")
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"),
        ("config", setting, f"touch {mark}; cat"),
    ):
        subprocess.run(["/usr/bin/env", "git", *words], cwd=foreign, check=True)
    write(foreign / "ffi" / "bridge.c", "/* changed */\n")

    facts = describe(found(foreign), ENVIRON)

    assert not mark.exists()
    assert (len(facts["commit"]), facts["dirty"]) == (40, True)
