"""Where a lowerer really runs, by what it says and by what its process has mapped. Judges only: it asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Json

if TYPE_CHECKING:
    from pytest_cudaboot.lowerers.base import LowererConfig


def proved_platform(config: LowererConfig, facts: Json) -> str:
    """Where a lowerer really runs, by its own client's word; a shim that has none must at least have the driver.

    :raises BoxError: if that is not what was asked for: a CPU plugin on a card's worker, or the reverse.
    """
    said = (facts.get("describe") or {}).get("platform")
    what = config.plugin or config.shim
    if said is not None and said != config.platform:
        raise BoxError(f"{what} runs on platform {said!r}, and this run is on {config.platform!r}")
    if said is None and config.platform == "cuda" and not _driver(facts.get("mapped") or {}):
        raise BoxError(
            f"{what} says nothing of its platform, and its process has not mapped libcuda: it is not on 'cuda'"
        )
    return config.platform


def undecided(config: LowererConfig, facts: Json) -> bool:
    """Whether a shim that tells nothing of itself has not loaded its plugin yet: it does with its first session."""
    silent = config.plugin is not None and not (facts.get("describe") or {}).get("platform")
    return silent and config.platform == "cuda" and not _driver(facts.get("mapped") or {})


def _driver(mapped: Mapping[str, list[str]]) -> bool:
    return any(name.startswith("libcuda.so") for name in mapped)
