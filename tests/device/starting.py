"""What tests of the device process share. It holds no test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_cudaboot.device.client import DeviceProcess

BUDGET = 30.0

Start = Callable[..., DeviceProcess]


def descriptors() -> set[str]:
    """What is open in this process, apart from the descriptor that looks."""
    return {entry.name for entry in Path("/proc/self/fd").iterdir() if entry.exists()}
