"""The IREE shim's line: the document's, expanded as a shell does it, and a build that depends on the archives."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from pytest_cudaboot.errors import BuildError
from pytest_cudaboot.lowerers.build import IREE_LINE, build_iree_shim, expand, rebuild_command
from pytest_cudaboot.probes.elf import exported
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.document import code_blocks

ENV = {"PATH": os.defpath, "LANG": "C"}
UNIFIED = "runtime/src/iree/runtime/libiree_runtime_unified.a"
FLATCC = "build_tools/third_party/flatcc/libflatcc_runtime.a"


def archive(path: Path, code: str) -> None:
    """An archive of one object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(".o")
    subprocess.run(
        ["gcc", "-fPIC", "-x", "c", "-c", "-", "-o", str(made)],  # noqa: S607 - the one on the path
        input=code,
        text=True,
        check=True,
        env=ENV,
    )
    path.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", str(path), str(made)], check=True, env=ENV)  # noqa: S607 - the same


@pytest.fixture
def source(tmp_path: Path) -> Path:
    header = tmp_path / "src/runtime/src/iree.h"
    header.parent.mkdir(parents=True)
    header.write_text("int iree(void);\n")
    return tmp_path / "src"


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build tree in which, as in a real one, the runtime needs what stands before it on the line."""
    archive(tmp_path / "build" / UNIFIED, "int verify(void); int iree(void) { return verify(); }")
    archive(tmp_path / "build" / FLATCC, "int verify(void) { return 1; }")
    return tmp_path / "build"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    ffi = tmp_path / "project/ffi"
    ffi.mkdir(parents=True)
    (ffi / "iree_ffi.c").write_text("#include <iree.h>\nint shim(void) { return iree(); }\n")
    return ffi.parent


def test_the_line_is_the_documents() -> None:
    text = (suite_root() / "fixtures/reference/BOOTSTRAP.md").read_text()
    blocks = (block.text.replace("\\\n", " ") for block in code_blocks(text, "bash"))
    lines = [line for block in blocks for line in block.splitlines() if "iree_ffi.c" in line]

    assert [shlex.split(line) for line in lines] == [list(IREE_LINE)]


def test_words_are_expanded_as_a_shell_does_it(source: Path, build: Path) -> None:
    line = 'echo -I"$IREE_SRC/runtime/src" "$IREE_BUILD"/build_tools/third_party/*/lib*.a'
    said = subprocess.run(
        ["sh", "-c", line],  # noqa: S607 - a shell is what it is compared with
        env={**ENV, "IREE_SRC": str(source), "IREE_BUILD": str(build)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    assert expand(shlex.split(line)[1:], source, build) == tuple(said.split())


def test_a_pattern_without_a_match_stays(tmp_path: Path) -> None:
    assert expand(["$IREE_BUILD/*/lib*.a"], tmp_path, tmp_path) == (f"{tmp_path}/*/lib*.a",)


def test_the_rebuild_command_can_be_pasted(source: Path, build: Path, project: Path) -> None:
    subprocess.run(["sh", "-ec", rebuild_command(source, build)], cwd=project, env=ENV, check=True)  # noqa: S607 - a shell

    assert "shim" in exported(project / "ffi/libiree_ffi.so")


def test_it_is_built_in_a_private_folder(project: Path, source: Path, build: Path, tmp_path: Path) -> None:
    made = build_iree_shim(project, tmp_path / "out", source, build, env=ENV)

    assert made.name == "libiree_ffi.so"
    assert {"shim", "iree"} <= exported(made)
    assert list((project / "ffi").iterdir()) == [project / "ffi/iree_ffi.c"]


def test_it_is_built_again_when_an_archive_changes(
    project: Path, source: Path, build: Path, tmp_path: Path
) -> None:
    first = build_iree_shim(project, tmp_path / "out", source, build, env=ENV)
    same = build_iree_shim(project, tmp_path / "out", source, build, env=ENV)
    archive(build / FLATCC, "int verify(void) { return 2; }")
    other = build_iree_shim(project, tmp_path / "out", source, build, env=ENV)

    assert first == same
    assert first != other


def test_without_the_group_the_same_archives_do_not_link(
    project: Path, source: Path, build: Path, tmp_path: Path
) -> None:
    line = [word for word in IREE_LINE if "group" not in word]

    with pytest.raises(BuildError, match="undefined reference to `verify'"):
        build_iree_shim(project, tmp_path / "out", source, build, env=ENV, line=line)
