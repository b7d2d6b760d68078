"""A compiler that crashes, hangs or writes half a file is refused with step and fix; a stand-in does each on purpose."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CompileError
from pytest_cudaboot.lowerers.modules import CompilerName, Modules, stored_compiler
from pytest_cudaboot.probes.compiler import ask_version, compile_module, module_fault, module_parts
from pytest_cudaboot.probes.store import ModuleStore
from pytest_cudaboot.probes.toolchain import find_iree_compile, find_iree_runtime
from pytest_cudaboot.rules.iree_target import cuda_target

ENV = {"PATH": os.defpath}
COMMIT = "0123456789" * 4
NAME = CompilerName("3.13.0", COMMIT)
StandIn = Callable[[str], Path]


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """Makes an `iree-compile` of a few lines of shell; `$out` is the file that it is to write."""

    def make(body: str) -> Path:
        program = tmp_path / "iree-compile"
        program.write_text(
            f'#!/bin/sh\nfor word; do out=$word; done\ncd "{tmp_path}"\necho run >>log\n{body}\n'
        )
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """What a good compiler would write."""
    path = tmp_path / "whole.vmfb"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("module.fb", b"byte code" * 100)
        archive.writestr("f_dispatch_0_cuda_nvptx_fb.fb", b"\n.version 7.6\n.target sm_86\n")
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "f.mlir"
    path.write_text("module {}\n")
    return path


def compiled_by(program: Path, graph: Path, budget: float = 30.0) -> Path:
    made = graph.with_name("made.vmfb")
    compile_module(program, graph, made, ["--flag"], env=ENV, budget=budget)
    return made


def test_a_compiler_says_its_version(stand_in: StandIn) -> None:
    said, done = ask_version(stand_in(f'echo "  IREE compiler version 3.13.0rc1 @ {COMMIT}"'), env=ENV)

    assert (said.version, said.commit) == ("3.13.0rc1", COMMIT)
    assert done.argv[1:] == ("--version",)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("kill -SEGV $$", r"Step 2: iree-compile --version failed; `pip install .*\n.*died of SIGSEGV"),
        ("sleep 60", r"did not end within 0.3 s and was killed"),
        ("", r"says no version and commit, but ''; `pip install --force-reinstall iree-base-compiler`"),
        (
            "echo IREE compiler version 3.13.0",
            r"says no version and commit, but 'IREE compiler version 3.13.0'",
        ),
    ],
)
def test_a_compiler_that_says_no_version_is_refused(stand_in: StandIn, body: str, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        ask_version(stand_in(body), env=ENV, budget=0.3 if "sleep" in body else 30.0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "kill -ABRT $$",
            r"Step 2: f.mlir was not compiled: (?s:.*)died of SIGABRT(?s:.*)to run it again:\n",
        ),
        (
            "printf 'f.mlir:1: error: no\nnote\n' >&2; exit 1",
            r"compiled: f.mlir:1: error: no\n.*exit status 1",
        ),
        ("sleep 60", r"did not end within 0.3 s and was killed"),
        ("true", r"left no whole module of f.mlir: there is no file; `pip install"),
        (
            'head -c 100 whole.vmfb >"$out"',
            r"left no whole module of f.mlir: it is no module: File is not a zip",
        ),
        ('cat log whole.vmfb log | tail -c 400 >"$out"', r"left no whole module of f.mlir: it is no module"),
        (': >"$out"', r"left no whole module of f.mlir: it is no module"),
    ],
)
@pytest.mark.usefixtures("whole")
def test_a_compiler_that_fails_names_step_and_fix(
    stand_in: StandIn, graph: Path, body: str, words: str
) -> None:
    with pytest.raises(CompileError, match=words):
        compiled_by(stand_in(body), graph, budget=0.3 if "sleep" in body else 30.0)


@pytest.mark.usefixtures("whole")
def test_the_child_gets_flags_graph_and_output(stand_in: StandIn, graph: Path) -> None:
    compiled_by(stand_in('echo "$@" >argv; cp whole.vmfb "$out"'), graph)

    assert (graph.parent / "argv").read_text() == f"--flag {graph} -o {graph.with_name('made.vmfb')}\n"


def test_a_flipped_byte_in_a_module_is_found_without_a_hash_beside_it(whole: Path) -> None:
    data = bytearray(whole.read_bytes())
    data[data.index(b"byte code") + 20] ^= 1
    whole.write_bytes(data)

    assert module_fault(whole) == "its part module.fb does not have its checksum"
    with pytest.raises(CompileError, match=r"whole.vmfb: its part module.fb"):
        module_parts(whole)


def test_an_archive_of_something_else_is_no_module(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.vmfb", "w") as archive:
        archive.writestr("readme.txt", b"hello")

    assert module_fault(tmp_path / "other.vmfb") == "it has no module.fb"


def modules(program: Path | None, folder: Path) -> Modules:
    return Modules(ModuleStore(folder), cuda_target("sm_86"), NAME, program=program, env=ENV)


@pytest.mark.usefixtures("whole")
def test_a_graph_is_compiled_once(stand_in: StandIn, graph: Path, tmp_path: Path) -> None:
    program = stand_in('cp whole.vmfb "$out"')
    first = modules(program, tmp_path / "kept").of(graph)
    second = modules(program, tmp_path / "kept").of(graph)

    assert (first.made, second.made, (tmp_path / "log").read_text()) == (True, False, "run\n")
    graph.write_text("module { }\n")
    assert modules(program, tmp_path / "kept").of(graph).made


@pytest.mark.usefixtures("whole")
def test_a_crash_leaves_nothing_to_be_found(stand_in: StandIn, graph: Path, tmp_path: Path) -> None:
    crashes = stand_in('head -c 100 whole.vmfb >"$out"; kill -SEGV $$')
    with pytest.raises(CompileError, match="died of SIGSEGV"):
        modules(crashes, tmp_path / "kept").of(graph)

    assert modules(None, tmp_path / "kept").lacking([graph]) == ["f.mlir"]


@pytest.mark.usefixtures("whole")
def test_without_a_compiler_what_is_kept_is_found(stand_in: StandIn, graph: Path, tmp_path: Path) -> None:
    kept = ModuleStore(tmp_path / "kept")
    modules(stand_in('cp whole.vmfb "$out"'), kept.folder).of(graph)

    assert stored_compiler(kept, COMMIT) == NAME
    assert stored_compiler(kept, "f" * 40) is None
    assert not modules(None, kept.folder).of(graph).made


def test_without_a_compiler_the_refusal_says_how_to_fill_the_folder(graph: Path, tmp_path: Path) -> None:
    words = (
        r"Step 2: no iree-compile here, and no module of f.mlir: nothing is kept under \w+; on a machine with "
        rf"iree-base-compiler 3.13.0 \(commit {COMMIT}\): `cudaboot compile FOLDER --target sm_86`"
    )
    with pytest.raises(CompileError, match=words):
        modules(None, tmp_path / "kept").of(graph)


def test_the_running_interpreters_compiler_comes_last(tmp_path: Path) -> None:
    own = tmp_path / "site-packages/iree/compiler/_mlir_libs/iree-compile"
    own.parent.mkdir(parents=True)
    own.touch()
    environ = {"PATH": str(tmp_path / "bin")}
    sites = [tmp_path / "site-packages"]

    found = find_iree_compile(environ, tmp_path, sites)
    assert (found.path, found.found_via) == (own, "the running interpreter's packages")

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/iree-compile").touch()
    assert find_iree_compile(environ, tmp_path, sites).found_via == "PATH"


def test_the_runtime_is_the_running_interpreters(tmp_path: Path) -> None:
    version = tmp_path / "iree/_runtime_libs/version.py"
    version.parent.mkdir(parents=True)
    version.touch()

    assert find_iree_runtime([tmp_path / "none", tmp_path]).path == version
