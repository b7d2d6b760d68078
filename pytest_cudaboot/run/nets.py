"""A project's nets with their oracles: the project's own Python file, loaded by its path, with its neighbours."""

from __future__ import annotations

import functools
import importlib
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_cudaboot.errors import ProjectError, SignatureError
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.signature import Signature, check_artifact

NEEDED = ("ORACLES", "FAMILY", "UPDATES", "RATE", "inputs")


class _Unknown:
    """What is known of a graph whose checkout brings no oracle: inputs of its signature, and nothing to hold it to."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    def inputs(self, _entry: str, seed: int) -> list[Any]:
        from pytest_cudaboot.rules.seeded import seeded_inputs

        return seeded_inputs(self._signature, seed)

    @property
    def ORACLES(self) -> Mapping[str, Any]:  # noqa: N802 - the name that an oracle file has for it
        raise ProjectError(f"the checkout brings no oracle for {self._signature.entry!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """One artifact with what it should compute.

    :param family: of the hardest operation, for the tolerance.
    :param updates: output index -> index of the input that it updates.
    :param rate: index of the input that is the learning rate, or null.
    """

    path: Path
    entry: str
    family: str
    updates: Mapping[int, int]
    rate: int | None
    _module: ModuleType | _Unknown

    def inputs(self, seed: int) -> list[Any]:
        """Seeded float32 inputs in the graph's order."""
        return list(self._module.inputs(self.entry, seed))

    def oracle(self, inputs: Sequence[Any]) -> list[Any]:
        """What the graph should return, in float64."""
        return list(self._module.ORACLES[self.entry](inputs))


@dataclass(frozen=True, kw_only=True, slots=True)
class Net:
    """A net of the project: its forward graph and its train step."""

    name: str
    forward: Graph
    step: Graph


def load_net(project: Project, name: str) -> Net:
    """A net by its name.

    :raises ProjectError: if the project has no oracle for it.
    """
    module = _oracles(project.oracles)
    return Net(
        name=name,
        forward=_graph(project.forward(name), module),
        step=_graph(project.step(name), module),
    )


def artifact_graph(path: Path) -> Graph:
    """A graph by its text alone.

    :raises SignatureError: it breaks the artifact rules.
    """
    from pytest_cudaboot.rules.seeded import family_of, updates_of

    signature = check_artifact(path)
    return Graph(
        path=path,
        entry=signature.entry,
        family=family_of(path.read_text(encoding="utf-8")),
        updates=updates_of(signature),
        rate=None,
        _module=_Unknown(signature),
    )


def artifact_net(project: Project) -> Net:
    """The two smallest graphs that keep the artifact rules, in the places of a net's; one may have to be both.

    :raises ProjectError: there is none.
    """
    found: list[Graph] = []
    for path in project.artifacts:
        try:
            found.append(artifact_graph(path))
        except SignatureError:
            continue  # `artifacts.rules` says which and why
        if len(found) > 1:
            break
    if not found:
        raise ProjectError(f"none of {len(project.artifacts)} graphs keeps the artifact rules")
    return Net(name=found[-1].entry, forward=found[0], step=found[-1])


def _graph(path: Path, module: ModuleType) -> Graph:
    entry = path.stem
    if entry not in module.ORACLES:
        raise ProjectError(
            f"{module.__file__} has no oracle for {entry!r}; it has: {', '.join(module.ORACLES)}"
        )
    return Graph(
        path=path,
        entry=entry,
        family=module.FAMILY[entry],
        updates=module.UPDATES[entry],
        rate=module.RATE.get(entry),
        _module=module,
    )


@functools.cache
def _oracles(path: Path) -> ModuleType:
    """The oracles, as a module of a package whose folder is their own: they may import what lies beside them."""
    if not path.is_file():
        raise ProjectError(f"no oracles: {str(path)!r} is not there")
    package = f"cudaboot_nets_{zlib.crc32(bytes(path)):08x}"
    sys.modules[package] = ModuleType(package)
    sys.modules[package].__path__ = [str(path.parent)]
    with _without_bytecode():
        module = importlib.import_module(f"{package}.{path.stem}")
    lacking = [name for name in NEEDED if not hasattr(module, name)]
    if lacking:
        raise ProjectError(f"{str(path)!r} lacks {', '.join(lacking)}")
    return module


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """A checkout is left as it was, while the import system would leave its bytecode there."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
