"""Runs on simulated boxes: the real `pynvml` and the real pin proof, over the stand-ins of `fixtures/boxes`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fixtures.boxes import replay
from tests.boxes.box import PLUGIN, BoxGate
from tests.run.gate import ROOT


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-ins, and the smallest plugin that a shim can drive, as if it were on a card; built once."""
    folder = replay.build(tmp_path_factory.mktemp("stand-ins"))
    source = ROOT / "tests/run/tiny_cuda.c"
    subprocess.run(["/usr/bin/env", "gcc", "-fPIC", "-shared", source, "-o", folder / PLUGIN], check=True)
    return folder


@pytest.fixture
def gate(tmp_path: Path, libraries: Path) -> BoxGate:
    """An empty folder; `gate.on(box)` puts a box under it."""
    return BoxGate(tmp_path, libraries)
