"""A project's graphs as compiled modules for one target: out of the store, or made by the compiler that is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import CompileError
from pytest_cudaboot.probes.compiler import COMPILE_BUDGET, Compiler, compile_module, content_hash
from pytest_cudaboot.probes.store import VARIABLE, ModuleKey, ModuleStore, Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_cudaboot.model import Json
    from pytest_cudaboot.rules.iree_target import Target


@dataclass(frozen=True, slots=True)
class CompilerName:
    """By what a module's compiler is known in its key."""

    version: str
    commit: str


class Modules:
    """Compiled modules of any graph.

    :param name: the compiler's; see :func:`stored_compiler` for where there is none.
    :param program: the compiler itself, or None: then only what is kept can be had.
    :param env: the whole environment of the compiler.
    """

    def __init__(
        self,
        store: ModuleStore,
        target: Target,
        name: CompilerName,
        *,
        program: Path | None,
        env: Mapping[str, str],
    ) -> None:
        self.store, self.target, self.name = store, target, name
        self._program, self._env = program, env

    def key(self, graph: Path) -> ModuleKey:
        """What a graph's module depends on."""
        return ModuleKey(
            mlir=content_hash(graph),
            backend=self.target.backend,
            chip=self.target.chip,
            flags=self.target.flags,
            version=self.name.version,
            commit=self.name.commit,
        )

    def of(self, graph: Path, *, budget: float = COMPILE_BUDGET) -> Stored:
        """A graph's module.

        :raises CompileError: it can neither be found nor made.
        """
        key = self.key(graph)
        if self._program is None:
            found = self.store.find(key)
            if isinstance(found, Stored):
                return found
            raise CompileError(
                f"Step 2: no iree-compile here, and no module of {graph.name}: {found.why}; {_fix(key)}"
            )
        program = self._program

        def make(made: Path) -> Json:
            return compile_module(program, graph, made, key.flags, env=self._env, budget=budget)

        return self.store.fill(key, make, patience=budget)

    def elsewhere(self, folder: Path) -> Modules:
        """The same, kept in another folder: for graphs that nobody will ask for again."""
        return Modules(ModuleStore(folder), self.target, self.name, program=self._program, env=self._env)

    def lacking(self, graphs: Iterable[Path]) -> list[str]:
        """Names of the graphs for which nothing is kept."""
        return [graph.name for graph in graphs if not isinstance(self.store.find(self.key(graph)), Stored)]


def name_of(compiler: Compiler) -> CompilerName:
    """A compiler's name in keys."""
    return CompilerName(compiler.version, compiler.said.commit)


def stored_compiler(store: ModuleStore, commit: str) -> CompilerName | None:
    """The compiler of a runtime's commit that modules were made with; None if there are none of that commit."""
    names = (CompilerName(found.key.version, found.key.commit) for found in store.entries())
    return next((name for name in names if name.commit == commit), None)


def _fix(key: ModuleKey) -> str:
    return (
        f"on a machine with iree-base-compiler {key.version} (commit {key.commit}): "
        f"`cudaboot compile FOLDER --target {key.chip}`, and then {VARIABLE}=FOLDER here"
    )
