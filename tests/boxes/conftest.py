"""Runs on simulated boxes: the real `pynvml` and the real pin proof, over the stand-ins of `fixtures/boxes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boxes.box import BoxGate


@pytest.fixture
def gate(tmp_path: Path, libraries: Path) -> BoxGate:
    """An empty folder; `gate.on(box)` puts a box under it."""
    return BoxGate(tmp_path, libraries)
