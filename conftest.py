"""The project's own tests run pytest inside pytest, and wait for it much of their time."""

from __future__ import annotations

import os

import pytest

pytest_plugins = ["pytester"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """What `-n logical` means here: three workers for two processors, unless xdist's own variable says it."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    processors = len(os.sched_getaffinity(0))
    return processors + (processors + 1) // 2
