"""The seam between a lowerer and everybody who uses one. It holds no behaviour of any lowerer."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pytest_cudaboot.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_cudaboot.model import Json
    from pytest_cudaboot.rules.signature import Signature

Array = npt.NDArray[np.float32]
Shape = tuple[int, ...]

# A third party's lowerer is named by `LowererConfig.implementation` and needs no line here.
IMPLEMENTATIONS = {
    "xla": "pytest_cudaboot.lowerers.xla:XlaLowerer",
    "iree": "pytest_cudaboot.lowerers.iree:IreeLowerer",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LowererConfig:
    """Everything that makes two device processes of one lowerer different; equal configurations may share one.

    :param name: how the lowerer is called in the catalogue and in results.
    :param platform: `cuda` or `cpu`.
    :param shim: the shared library with the ABI; None for a lowerer that comes as a Python package.
    :param plugin: what the shim loads in turn, such as a PJRT plugin; None if it loads nothing.
    :param environment: what the process needs in its environment. It is read by C code when the first session is
        made, so whoever starts the process puts it there; a lowerer never changes its own environment.
    :param implementation: `module:Class` of the lowerer; None looks `name` up.
    """

    name: str
    platform: str
    shim: str | None = None
    plugin: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    implementation: str | None = None


class Session(Protocol):
    """One artifact, loaded and ready to run."""

    @property
    def signature(self) -> Signature:
        """Entry, input and output types of the artifact, as it says itself."""

    def invoke(
        self, function: str, arrays: Sequence[Array], outputs: Sequence[Shape] | None = None
    ) -> list[Array]:
        """Run once, synchronously, with the inputs on the host.

        Inputs are passed on as they are: it is the shim that has to refuse what does not fit.

        :param function: the caller's word for the entry; `module.entry` means `entry`.
        :param arrays: the graph's inputs in order, float32; a rank-0 array is a scalar.
        :param outputs: shapes to make room for; None for those of the signature.
        :returns: the graph's outputs in order, float32, owned by the caller.
        :raises ShimError: the shim answered with another code than 0.
        :raises UnsupportedError: it answered 99.
        """

    def close(self) -> None:
        """Release what the session holds; safe to call twice."""


class Lowerer(Protocol):
    """Makes sessions. It is constructed with a :class:`LowererConfig`, in the process that runs them."""

    def open_session(self, path: Path, source: Path | None = None) -> Session:
        """Load an artifact.

        :param path: what the shim takes: StableHLO text for XLA, a compiled module for IREE.
        :param source: the StableHLO text that `path` was made of; None if `path` is that text.
        :raises SignatureError: the text breaks the artifact rules.
        :raises ShimError: the shim made no session.
        """

    def facts(self) -> Json:
        """What really loaded, as plain data: `name`, `platform`, `shim`, and what the shim tells about itself."""

    def close(self) -> None:
        """Release what is left; sessions are closed before."""


def make_lowerer(config: LowererConfig) -> Lowerer:
    """The lowerer that a configuration names."""
    target = config.implementation or IMPLEMENTATIONS.get(config.name)
    if target is None:
        raise UsageError(f"no lowerer {config.name!r}; there are: {', '.join(IMPLEMENTATIONS)}")
    module, _, name = target.partition(":")
    made: Lowerer = getattr(importlib.import_module(module), name)(config)
    return made


def config_from_json(data: Mapping[str, Any]) -> LowererConfig:
    """A configuration that crossed a process boundary."""
    return LowererConfig(**data)
