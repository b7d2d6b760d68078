"""The PJRT plugins of a run. Looked for once, by the controller; a miss is a fact of the run, not an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import ToolMissingError
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes import toolchain
from pytest_cudaboot.run.box import Box


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """A PJRT plugin, or why there is none."""

    path: str | None
    facts: Json

    @property
    def absence(self) -> str | None:
        """Why there is none, without the places that were tried."""
        words = self.facts.get("absence")
        return str(words).partition(";")[0] if words else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugins:
    """Those of a run.

    :param own: of the run's platform; the one that is driven.
    :param cuda: the installed CUDA plugin; it need not have a card to be looked at.
    """

    own: Plugin
    cuda: Plugin


def find_plugins(project: Path, box: Box, environ: Mapping[str, str]) -> Plugins:
    """Look for both.

    :param project: the checkout whose own environment comes first.
    """
    folders = toolchain.package_folders()
    cuda = _found(lambda: toolchain.find_cuda_plugin(environ, project, folders, box.cuda))
    return Plugins(
        own=cuda if box.gpus else _found(lambda: toolchain.find_cpu_plugin(environ, folders)), cuda=cuda
    )


def plugin_conditions(plugins: Plugins, box: Box) -> dict[str, str | None]:
    """Conditions of scope: None where it holds, else why not, in a few words."""
    missing = plugins.own.absence
    return {
        "device": missing,
        "cuda-plugin": plugins.cuda.absence,
        "cpu-plugin": "the run is on cards" if box.gpus else missing,
    }


def _found(search: Callable[[], toolchain.Found]) -> Plugin:
    try:
        found = search()
    except ToolMissingError as miss:
        return Plugin(path=None, facts={"path": None, "absence": str(miss)})
    distribution = toolchain.distribution_of(found.path)
    facts = {
        "path": str(found.path),
        "found_via": found.found_via,
        "distribution": distribution.name if distribution else None,
        "version": found.version,
    }
    return Plugin(path=str(found.path), facts=facts)
