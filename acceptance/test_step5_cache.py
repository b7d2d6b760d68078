"""Step 5: Smoke test, modules that are kept. BOOTSTRAP.md#step-5-smoke-test"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.probes.compiler import Compiler, module_fault
from pytest_cudaboot.probes.store import ModuleStore, Stored
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import Target, choose_target, cuda_target
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.run.evidence import Evidence

from .nets import plainest_net

TARGET = cuda_target("sm_86")


@dataclass(frozen=True, slots=True)
class Cache:
    """A private cache with a compiler that says each time that it is run."""

    folder: Path
    log: Path
    program: Path
    compiler: Compiler
    env: Mapping[str, str]
    evidence: Evidence

    def of(self, graph: Path, target: Target = TARGET, compiler: Compiler | None = None) -> Stored:
        """As one run would ask for it."""
        self.evidence.act()
        name = name_of(compiler or self.compiler)
        store = ModuleStore(self.folder)
        return Modules(store, target, name, program=self.program, env=self.env).of(graph)

    @property
    def runs(self) -> int:
        """How often the compiler was run."""
        return len(self.log.read_text().splitlines()) if self.log.is_file() else 0


@pytest.fixture
def cache(iree_compiler: Compiler, outer: Mapping[str, str], tmp_path: Path, evidence: Evidence) -> Cache:
    program, log = tmp_path / "iree-compile", tmp_path / "log"
    real = shlex.quote(str(iree_compiler.path))
    program.write_text(f'#!/bin/sh\necho "$@" >>{shlex.quote(str(log))}\nexec {real} "$@"\n')
    program.chmod(0o755)
    env = pin_environment(outer, ())
    return Cache(tmp_path / "modules", log, program, iree_compiler, env, evidence)


@pytest.fixture
def graph(project: Project, tmp_path: Path) -> Path:
    """A copy of a graph, to be changed."""
    return Path(shutil.copy(plainest_net(project).forward.path, tmp_path))


# > It is reused until one of these changes or its folder is removed
@pytest.mark.spec("step5.cache-reuse")
def test_a_second_run_executes_no_compiler(cache: Cache, graph: Path, measure: Callable[..., None]) -> None:
    first, second = cache.of(graph), cache.of(graph)

    measure(compiler_runs=cache.runs, compile_seconds=first.facts["seconds"])
    assert (first.made, second.made, cache.runs) == (True, False, 1)
    assert (first.path, first.sha256) == (second.path, second.sha256)


@pytest.mark.spec("step5.cache-clear")
def test_a_cleared_cache_is_filled_again(cache: Cache, graph: Path) -> None:
    cache.of(graph)
    shutil.rmtree(cache.folder)

    assert cache.of(graph).made
    assert cache.runs == 2


@pytest.mark.spec("step5.cache-mlir")
def test_a_graph_that_changed_is_compiled_again(cache: Cache, graph: Path) -> None:
    before = cache.of(graph)
    graph.write_text(f"{graph.read_text()}// another\n")

    assert cache.of(graph).key != before.key
    assert cache.runs == 2


# > The time of a file says nothing about it
@pytest.mark.spec("step5.cache-mlir", role="canary")
def test_a_change_that_looks_older_is_seen(cache: Cache, graph: Path) -> None:
    before = cache.of(graph)
    graph.write_text(f"{graph.read_text()}// another\n")
    os.utime(graph, (0, 0))

    # What goes by time alone, `make` for one, would call the module current.
    assert graph.stat().st_mtime < before.path.stat().st_mtime
    assert cache.of(graph).made


@pytest.mark.spec("step5.cache-mlir", role="canary")
def test_a_clock_that_was_set_changes_nothing(cache: Cache, graph: Path) -> None:
    before = cache.of(graph)
    for path in (graph, before.path):
        os.utime(path, (2**31, 2**31))

    assert not cache.of(graph).made


@pytest.mark.spec("step5.cache-rest")
def test_the_same_key_is_the_same_module(cache: Cache, graph: Path) -> None:
    assert cache.of(graph).sha256 == cache.of(graph).sha256
    assert cache.runs == 1


# > the graph's bytes, backend, target, flags, and the compiler with its commit
@pytest.mark.spec("step5.cache-rest", role="canary")
@pytest.mark.parametrize(
    "target", [cuda_target("sm_80"), choose_target("cpu", {})], ids=["another chip", "another backend"]
)
def test_another_target_is_compiled(cache: Cache, graph: Path, target: Target) -> None:
    cache.of(graph)

    assert cache.of(graph, target).made
    assert cache.runs == 2


@pytest.mark.spec("step5.cache-rest", role="canary")
def test_another_compiler_compiles_again(cache: Cache, graph: Path) -> None:
    cache.of(graph)
    said = cache.compiler.said
    bumped = replace(cache.compiler, package=f"{cache.compiler.version}.post1")
    rebuilt = replace(cache.compiler, said=replace(said, commit=said.commit[::-1]))

    assert cache.of(graph, compiler=bumped).made
    assert cache.of(graph, compiler=rebuilt).made
    assert cache.runs == 3


@pytest.mark.spec("step5.cache-rest", role="canary")
def test_other_flags_are_another_key(cache: Cache, graph: Path) -> None:
    key = cache.of(graph).key
    other = replace(key, flags=(*key.flags, "--iree-opt-level=O0"))

    assert not isinstance(ModuleStore(cache.folder).find(other), Stored)


# > a module that is not what it was when it was made is compiled again
@pytest.mark.spec("step5.cache-rest", role="canary")
def test_a_flipped_byte_is_never_served(cache: Cache, graph: Path) -> None:
    stored = cache.of(graph)
    data = bytearray(stored.path.read_bytes())
    data[len(data) // 2] ^= 1
    stored.path.write_bytes(data)

    again = cache.of(graph)
    assert again.made
    assert module_fault(again.path) is None
    assert cache.runs == 2
