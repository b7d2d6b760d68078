"""Runs on simulated boxes: the real `pynvml` and the real pin proof, over the stand-ins of `fixtures/boxes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boxes.box import BoxGate, stand_ins


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-ins, and the smallest plugin that a shim can drive, as if it were on a card; built once."""
    return stand_ins(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture
def gate(tmp_path: Path, libraries: Path) -> BoxGate:
    """An empty folder; `gate.on(box)` puts a box under it."""
    return BoxGate(tmp_path, libraries)
