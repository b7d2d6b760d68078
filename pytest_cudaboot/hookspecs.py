"""What another package may add to a run: hooks, and the facts that they hand over. It holds no behaviour.

A package that is installed with a `pytest11` entry point (or named with `-p`) implements those that it needs, as
pytest's own hooks are implemented. docs/extending.md has a whole example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_cudaboot.model import Gpu, Json

hookspec = pluggy.HookspecMarker("pytest")


@dataclass(frozen=True, kw_only=True, slots=True)
class LowererOffer:
    """A lowerer that a package brings.

    :param name: as a catalogue and `--cudaboot-lowerers` have it.
    :param implementation: `module:Class`, imported in the device process; the class is constructed with a
        `lowerers.base.LowererConfig` and has the methods of `lowerers.base.Lowerer`.
    :param shim: what the class finds in its configuration; `plugin` likewise.
    :param environment: what the device process needs in its environment.
    :param absence: why it can not be had here, in a few words; null where it can.
    """

    name: str
    implementation: str
    shim: str | None = None
    plugin: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    absence: str | None = None


class BoxMonitor(Protocol):
    """Watches something of the box while tests run, from the controller; it must not wait."""

    @property
    def name(self) -> str:
        """What its facts stand under in a cell's evidence."""

    def begin(self, nodeid: str) -> None:
        """A test is on its way to a worker."""

    def end(self, nodeid: str) -> Json:
        """It has ended: what was seen meanwhile, as plain data; nothing where it is empty."""


@hookspec
def pytest_cudaboot_lowerers(
    project: Path, platform: str, environ: Mapping[str, str]
) -> Sequence[LowererOffer]:
    """More lowerers. Asked once, by the controller, before the catalogue is read.

    :param platform: where the run executes: `cuda` or `cpu`.
    """
    return ()


@hookspec
def pytest_cudaboot_conditions(
    project: Path, platform: str, environ: Mapping[str, str]
) -> Mapping[str, str | None]:
    """More conditions of scope: `package.name` to null where it is met, else to why not, in a few words."""
    return {}


@hookspec
def pytest_cudaboot_skews(toolchain: Json) -> Sequence[str]:
    """Parts of the toolchain that contradict each other, a sentence each; any of them makes the run `environment`.

    :param toolchain: what was found, as the verdict has it.
    """
    return ()


@hookspec
def pytest_cudaboot_monitors(platform: str, gpus: Sequence[Gpu]) -> Sequence[BoxMonitor]:
    """Monitors of the box, for the length of a run."""
    return ()


def flat(answers: Sequence[Sequence[Any]]) -> list[Any]:
    """The answers of all packages in one list."""
    return [entry for answer in answers for entry in answer]
