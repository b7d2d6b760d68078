"""A gate to run, in an environment as a user's shell has it."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

# What a run imports late has to be here before the first one begins: pytester removes what came in meanwhile.
from pytest_cudaboot.device import client  # noqa: F401 - the import is the point
from pytest_cudaboot.lowerers import build  # noqa: F401 - the import is the point
from pytest_cudaboot.probes.nvml import NvmlView
from pytest_cudaboot.run import deciding, inprocess, joining, scheduler  # noqa: F401 - the import is the point
from tests.run.gate import PATH, Gate

PINNED = ("CUDA_VISIBLE_DEVICES", "CUDABOOT_LANE", "CUDABOOT_RUN", "OPENBLAS_NUM_THREADS")


@pytest.fixture
def gate(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, common: Path) -> Gate:
    """An empty folder, and an environment as a user's shell has it."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_XDIST_", "PYTEST_ADDOPTS"))]:
        monkeypatch.delenv(name)
    for name in PINNED:
        # A run without workers pins its own process, so that what was there before has to be put back.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", PATH)
    monkeypatch.setenv("GATE_PROCESSORS", "1")
    # Two runs of these tests on one machine have the same cards, and must not wait for each other.
    monkeypatch.setenv("CUDABOOT_LEASE_DIR", str(pytester.path / "leases"))
    monkeypatch.setenv("CUDABOOT_HISTORY", str(pytester.path / "history"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)  # the cache folder is in pytester's home
    share_builds(common)
    return Gate(pytester)


def share_builds(common: Path) -> None:
    """Have the shim built by the first run that needs it; of the cache folder all else is the test's own, as its home is."""
    shared, own = common / "gate-builds", platformdirs.user_cache_path("cudaboot")
    shared.mkdir(exist_ok=True)
    own.mkdir(parents=True, exist_ok=True)
    (own / "builds").symlink_to(shared)


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two processors, for what one worker alone does not show."""
    monkeypatch.setenv("GATE_PROCESSORS", "2")


@pytest.fixture
def no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without cards, driver or NVML, whatever this one has."""
    absent = "NVML Shared Library Not Found"
    monkeypatch.setattr("pytest_cudaboot.probes.nvml.look", lambda: NvmlView(absence=absent))
    monkeypatch.setattr("pytest_cudaboot.probes.pci.cards", lambda _: ())
