"""What a run has of IREE: a compiler, a runtime, modules that are kept. Looked for once, by the controller; it runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cudaboot.errors import TargetError, ToolMissingError
from pytest_cudaboot.lowerers.modules import Modules, stored_compiler
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes import store, toolchain
from pytest_cudaboot.project import Project, suite_root
from pytest_cudaboot.rules.iree_pins import read_runtime_commit
from pytest_cudaboot.rules.iree_target import choose_target
from pytest_cudaboot.rules.signature import artifact_fault


@dataclass(frozen=True, kw_only=True, slots=True)
class IreeParts:
    """Plain facts, so that they can travel.

    :param compiler: path of `iree-compile`, or null; its facts say how it was found, or every place that was tried.
    :param runtime: folder of the runtime package, or null; its facts say its commit, too.
    :param modules: folder of the compiled modules.
    """

    compiler: str | None = None
    compiler_facts: Json = field(default_factory=dict)
    runtime: str | None = None
    runtime_facts: Json = field(default_factory=dict)
    modules: str = ""

    @property
    def commit(self) -> str | None:
        """The runtime's, which a compiler must share."""
        commit: str | None = self.runtime_facts.get("commit")
        return commit


def find_iree(environ: Mapping[str, str], project: Project, site_packages: Sequence[Path]) -> IreeParts:
    """Look for all of it; a miss is a fact of the run, not an error."""
    compiler, about = _search(lambda: toolchain.find_iree_compile(environ, project.path, site_packages))
    runtime, known = _search(lambda: toolchain.find_iree_runtime(site_packages))
    if runtime is not None:
        known["commit"] = read_runtime_commit(Path(runtime).read_text(errors="replace"))
    return IreeParts(
        compiler=compiler,
        compiler_facts=about,
        runtime=str(Path(runtime).parent) if runtime else None,
        runtime_facts=known,
        modules=str(store.default_folder(environ)),
    )


def iree_conditions(
    parts: IreeParts, project: Project, platform: str, environ: Mapping[str, str]
) -> dict[str, str | None]:
    """The conditions of scope that IREE's parts answer: None where one holds, else why not, in a few words."""
    program = _absence(parts.compiler_facts)
    modules = None if program is None else _unkept(parts, project, platform, environ, program)
    return {
        "iree-compile": program,
        "compiler": modules,
        "device:iree": _absence(parts.runtime_facts) or modules,
    }


def kept_modules(parts: IreeParts, platform: str, environ: Mapping[str, str]) -> Modules | None:
    """What can be had without a compiler: modules that one of the runtime's commit made. None if there are none.

    :raises TargetError: a variable names no target.
    """
    kept = store.ModuleStore(Path(parts.modules))
    name = stored_compiler(kept, parts.commit) if parts.commit else None
    target = choose_target(platform, environ)
    return Modules(kept, target, name, program=None, env={}) if name else None


def needed_graphs(project: Project) -> list[Path]:
    """What a run may ask a module of: the project's nets, its artifacts, and the suite's own graphs that must be refused."""
    nets = [graph for net in project.nets for graph in (project.forward(net), project.step(net))]
    nets += [path for path in project.unproved if path not in nets and artifact_fault(path) is None]
    return nets + sorted((suite_root() / "fixtures" / "broken" / "graphs").glob("*.mlir"))


def _unkept(
    parts: IreeParts, project: Project, platform: str, environ: Mapping[str, str], absence: str
) -> str | None:
    try:
        modules = kept_modules(parts, platform, environ)
    except TargetError:
        return None  # a variable that means nothing is refused where it is used, by its name
    if modules is None:
        return absence
    lacking = modules.lacking(needed_graphs(project))
    return f"{absence}, and no module of {', '.join(lacking)} for {modules.target}" if lacking else None


def _search(search: Callable[[], toolchain.Found]) -> tuple[str | None, Json]:
    try:
        found = search()
    except ToolMissingError as miss:
        return None, {"path": None, "absence": str(miss)}
    return str(found.path), {
        "path": str(found.path),
        "found_via": found.found_via,
        "version": found.version,
    }


def _absence(facts: Json) -> str | None:
    """Why a part is not there, without the places that were tried."""
    absence = facts.get("absence")
    return str(absence).partition(";")[0] if absence else None
