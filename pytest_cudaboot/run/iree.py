"""The fixtures of the second lowerer: its compiler, its modules, and how it is opened on this worker's device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import pytest

from pytest_cudaboot.errors import PinError
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.model import Gpu, Json
from pytest_cudaboot.probes.compiler import Compiler, ask_version, compile_module, module_parts
from pytest_cudaboot.probes.store import ModuleStore, Stored
from pytest_cudaboot.probes.venvs import environment_with
from pytest_cudaboot.rules.iree_pins import PACKAGE, require_same_commit
from pytest_cudaboot.rules.iree_target import Target, choose_device, choose_target
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.rules.targets import require_loadable
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.iree_parts import kept_modules
from pytest_cudaboot.run.worker import WORKER, Worker

if TYPE_CHECKING:
    from pytest_cudaboot.lowerers.base import LowererConfig


@pytest.fixture(scope="session")
def iree_compile(request: pytest.FixtureRequest) -> Path:
    """The IREE compiler that the project would find."""
    parts = request.config.stash[WORKER].plan.iree
    if parts.compiler is None:
        pytest.skip(f"no IREE compiler: {parts.compiler_facts['absence']}")
    return Path(parts.compiler)


@pytest.fixture(scope="session")
def iree_compiler(iree_compile: Path, request: pytest.FixtureRequest) -> Compiler:
    """The same with what it says of itself; it must be of the runtime's commit, where there is a runtime."""
    worker = request.config.stash[WORKER]
    facts = worker.plan.iree.compiler_facts
    said, _ = ask_version(iree_compile, env=compiler_environment(worker))
    if worker.plan.iree.commit is not None:
        require_same_commit(said.commit, worker.plan.iree.commit)
    return Compiler(path=iree_compile, found_via=facts["found_via"], package=facts["version"], said=said)


@pytest.fixture(scope="session")
def modules(request: pytest.FixtureRequest) -> Modules:
    """The project's graphs as modules for this run's platform, compiled where they are not kept yet."""
    worker = request.config.stash[WORKER]
    plan = worker.plan
    if plan.iree.compiler is None:
        kept = kept_modules(plan.iree, plan.platform, worker.environ)
        if kept is None:
            pytest.skip(f"no IREE compiler: {plan.iree.compiler_facts['absence']}")
        return kept
    compiler: Compiler = request.getfixturevalue("iree_compiler")
    return modules_with(compiler, worker, Path(plan.iree.modules))


@pytest.fixture
def compiler_of(request: pytest.FixtureRequest, evidence: Evidence) -> Callable[[str], Path]:
    """A function that gives another version of the compiler, from an environment of its own that is kept."""
    environment = compiler_environment(request.config.stash[WORKER])

    def install(version: str) -> Path:
        kept = platformdirs.user_cache_path("cudaboot") / "environments"
        made = environment_with(f"{PACKAGE}=={version}", kept, env=environment, budget=evidence.left)
        # The program itself: the script in `bin` would import whatever a PYTHONPATH has.
        return next(made.glob("lib/python3.*/site-packages/iree/compiler/_mlir_libs/iree-compile"))

    return install


@pytest.fixture
def compile_graph(
    request: pytest.FixtureRequest, evidence: Evidence, tmp_path: Path
) -> Callable[..., dict[str, bytes]]:
    """A function that compiles a graph for a target, whatever is kept, and returns the parts of the module.

    Its third argument is another program than the project's compiler. What was asked of it is noted.
    """
    environment = compiler_environment(request.config.stash[WORKER])

    def compile_now(graph: Path, target: Target, program: Path | None = None) -> dict[str, bytes]:
        evidence.act()
        compiler = program or request.getfixturevalue("iree_compiler").path
        made = tmp_path / f"{graph.stem}-{target.chip}.vmfb"
        evidence.note(argv=[str(compiler), *target.flags, str(graph)])
        compile_module(compiler, graph, made, target.flags, env=environment, budget=evidence.left)
        return module_parts(made)

    return compile_now


def modules_with(compiler: Compiler, worker: Worker, folder: Path) -> Modules:
    """Modules in a folder, for this worker's platform."""
    return Modules(
        ModuleStore(folder),
        choose_target(worker.plan.platform, worker.environ),
        name_of(compiler),
        program=compiler.path,
        env=compiler_environment(worker),
    )


def compiler_environment(worker: Worker) -> dict[str, str]:
    """What a compiler is started with: it needs no card, and must not depend on one."""
    return pin_environment(worker.environ, ())


def iree_config(worker: Worker) -> LowererConfig:
    """How IREE is opened on this worker's device, through its runtime package."""
    from pytest_cudaboot.lowerers.base import LowererConfig

    platform = worker.plan.platform
    environment = {"IREE_DEVICE": choose_device(platform, worker.environ)}
    return LowererConfig(name="iree", platform=platform, environment=environment)


def require_own_cards(facts: Json, gpus: Sequence[Gpu]) -> None:
    """A pin that the driver confirms must be the runtime's as well.

    :raises PinError: IREE's own list of devices is another.
    """
    seen = [device["uuid"] for device in facts.get("describe", {}).get("devices", [])]
    pinned = [gpu.uuid for gpu in gpus]
    if pinned and seen and sorted(map(str, seen)) != sorted(pinned):
        raise PinError(f"IREE sees {', '.join(map(str, seen))}, and this worker has {', '.join(pinned)}")


def compiled(modules: Modules, graph: Path, gpus: Sequence[Gpu], evidence: Evidence) -> Stored:
    """A graph's module, after it was held against the cards that are to load it; what it is, is noted."""
    stored = modules.of(graph, budget=evidence.left)
    evidence.note(
        module={"key": stored.key.digest, "sha256": stored.sha256, "made": stored.made, **stored.facts},
        target=str(modules.target),
    )
    for gpu in gpus:
        require_loadable(module_parts(stored.path), gpu)
    return stored
