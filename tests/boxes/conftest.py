"""Runs on simulated boxes: the real `pynvml` and the real pin proof, over the stand-ins of `fixtures/boxes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.boxes import replay
from tests.boxes.box import BoxGate


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-ins, built once."""
    return replay.build(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture
def gate(tmp_path: Path, libraries: Path) -> BoxGate:
    """An empty folder; `gate.on(box)` puts a box under it."""
    return BoxGate(tmp_path, libraries)
