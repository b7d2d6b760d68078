"""Machines for the doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.machine import ON_BUS, TWO, Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def whole(machine: Machine) -> Machine:
    """A box of two cards that lacks nothing."""
    machine.nvml(TWO, ON_BUS)
    machine.plugin()
    machine.libraries()
    return machine
