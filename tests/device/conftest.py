"""Device processes with a service that tests can ask for everything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.device.client import DeviceProcess
from tests.device.starting import Start

HERE = Path(__file__).parent


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts device processes, which all end with the test."""
    started: list[DeviceProcess] = []

    def start_one(name: str = "Service", **arguments: Any) -> DeviceProcess:
        env = {"PATH": os.defpath, "PYTHONPATH": str(HERE), **arguments.pop("env", {})}
        target = f"service_under_test:{name}"
        started.append(DeviceProcess(env=env, log_path=tmp_path / "device.log", target=target, **arguments))
        return started[-1]

    yield start_one
    for device in started:
        device.close()


@pytest.fixture
def device(start: Start) -> DeviceProcess:
    return start()
