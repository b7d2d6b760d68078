"""What tests of several folders share.

Here is set, too, that linear algebra has one thread a process: for arrays this small, more only wait for each other.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# numpy reads it when it is first imported, so that it is set before a test module can do that.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def common(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all workers, for what is built once; without workers the session's own is nobody else's."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session")
def libraries(common: Path) -> Path:
    """The stand-ins that make a simulated box; built once."""
    from tests.boxes.box import stand_ins

    return stand_ins(common / "stand-ins")
