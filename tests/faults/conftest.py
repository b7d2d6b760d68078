"""The stand-ins that make a simulated box, for runs with faults in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boxes.box import stand_ins


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_ins(tmp_path_factory.mktemp("stand-ins"))
