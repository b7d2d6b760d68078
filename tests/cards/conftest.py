"""Kernels by name, on this worker's card. It loads what lies beside it and nothing of a project's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.worker import Worker

HERE = Path(__file__).resolve().parent


@pytest.fixture
def poison(_worker: Worker, evidence: Evidence) -> LowererHandle:
    """The lowerer of `poison.py`, in the device process of this worker's card."""
    config = LowererConfig(
        name="poison",
        platform="cuda",
        shim="libcuda.so.1",
        environment={"PYTHONPATH": str(HERE)},
        implementation="poison:Poison",
    )
    return _worker.devices.open(config, evidence)


@pytest.fixture
def kernel(poison: LowererHandle) -> Callable[[str], SessionHandle]:
    """A function that loads a kernel by name."""
    return lambda name: poison.open_session(HERE / "kernels" / f"{name}.ptx")
