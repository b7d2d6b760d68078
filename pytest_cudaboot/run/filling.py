"""`cudaboot compile`: fill a folder with a project's modules, so that a machine without a compiler can run them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from pytest_cudaboot.errors import (
    BusyError,
    CompileError,
    SkewError,
    TargetError,
    ToolMissingError,
    UsageError,
)
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.probes.compiler import Compiler, ask_version
from pytest_cudaboot.probes.store import VARIABLE, ModuleStore
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_pins import require_same_commit
from pytest_cudaboot.rules.iree_target import Target, choose_target, cuda_target
from pytest_cudaboot.run.iree_parts import IreeParts, find_iree, needed_graphs


def fill(
    folder: Path,
    project: Project,
    targets: Sequence[str],
    environ: Mapping[str, str],
    *,
    site_packages: Sequence[Path],
    out: TextIO,
) -> int:
    """Compile each net of a project for each target, where the folder does not have it yet.

    :param targets: chips such as `sm_86`, and `cpu`.
    :raises UsageError: there is no compiler, or a target is none, or the compiler refuses a graph.
    """
    parts = find_iree(environ, project, site_packages)
    graphs = needed_graphs(project)
    try:
        compiler = _compiler(parts, environ)
        for target in [_target(name) for name in targets]:
            modules = Modules(
                ModuleStore(folder), target, name_of(compiler), program=compiler.path, env=dict(environ)
            )
            for graph in graphs:
                stored = modules.of(graph)
                word = f"{stored.facts['seconds']:.1f} s" if stored.made else "kept"
                out.write(f"{graph.stem} {target} {word}\n")
    except (ToolMissingError, SkewError, TargetError, CompileError, BusyError) as error:
        raise UsageError(str(error)) from error
    out.write(
        f"{len(graphs)} modules a target, by {compiler.version} ({compiler.said.commit}); to use them: "
    )
    out.write(f"{VARIABLE}={os.fspath(folder.absolute())}\n")
    return 0


def cpu_modules(
    folder: Path, project: Project, environ: Mapping[str, str], site_packages: Sequence[Path]
) -> Modules:
    """Modules for the CPU in a folder, by the compiler that the project would find.

    :raises ToolMissingError: there is none.
    """
    compiler = _compiler(find_iree(environ, project, site_packages), environ)
    return Modules(
        ModuleStore(folder), _target("cpu"), name_of(compiler), program=compiler.path, env=dict(environ)
    )


def _compiler(parts: IreeParts, environ: Mapping[str, str]) -> Compiler:
    facts = parts.compiler_facts
    if parts.compiler is None:
        raise ToolMissingError(facts["absence"])
    said, _ = ask_version(Path(parts.compiler), env=environ)
    if parts.commit is not None:
        require_same_commit(said.commit, parts.commit)
    return Compiler(
        path=Path(parts.compiler), found_via=facts["found_via"], package=facts["version"], said=said
    )


def _target(name: str) -> Target:
    return choose_target("cpu", {}) if name == "cpu" else cuda_target(name)
