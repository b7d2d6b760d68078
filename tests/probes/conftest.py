"""A folder for leases that is nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"
