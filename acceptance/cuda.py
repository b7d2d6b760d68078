"""What CUDA says: the cards that the driver shows, and the version that a plugin was built for. It holds no test."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.device.client import DeviceProcess, prove_pin
from pytest_cudaboot.model import Json
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.worker import WORKER


@dataclass(frozen=True, slots=True)
class CudaView:
    """The cards that the driver shows to a process, by UUID and in its order."""

    uuids: list[str]


@pytest.fixture
def cuda_view(request: pytest.FixtureRequest, tmp_path: Path, evidence: Evidence) -> Callable[..., CudaView]:
    """A function that asks the driver in a throw-away process, which makes no context on any card."""
    environ = request.config.stash[WORKER].environ

    def ask(
        *, mask: str | None, order: str | None = "PCI_BUS_ID", expected: list[str] | None = None
    ) -> CudaView:
        evidence.act()
        wanted = {"CUDA_VISIBLE_DEVICES": mask, "CUDA_DEVICE_ORDER": order}
        env = {name: value for name, value in {**environ, **wanted}.items() if value is not None}
        with DeviceProcess(env=env, log_path=tmp_path / "view.log") as process:
            if expected is not None:
                prove_pin(process, expected)
            return CudaView(process.call("prove", budget=evidence.left))

    return ask


def cuda_version(facts: Json) -> int | None:
    """The CUDA that a plugin was built for, 12090 for 12.9, as its own attributes have it."""
    version = facts.get("describe", {}).get("attributes", {}).get("cuda_version")
    return int(version) if version is not None else None


def cuda_major(facts: Json, plugin: Path) -> int | None:
    """The same by its major; the folder that pip installs it into says it too."""
    version = cuda_version(facts)
    if version is not None:
        return version // 1000
    named = re.search(r"xla_cuda(\d+)", str(plugin))
    return int(named[1]) if named else None
