"""tox drops the environment, and with it a mask, unless it is told to pass it on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[1]
MASK = "GPU-00000000-0000-0000-0000-000000000001"
SHOWN = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('PJRT_PLUGIN'))"


@pytest.mark.parametrize("name", ["cuda", "host"])
def test_an_outer_mask_reaches_the_inside_of_tox(tmp_path: Path, name: str) -> None:
    words = ["--workdir", str(tmp_path), "--skip-pkg-install", "-q", "-e", name, "--", "python", "-c", SHOWN]
    outer = {**os.environ, "CUDA_VISIBLE_DEVICES": MASK, "PJRT_PLUGIN": "/some/plugin.so"}

    done = subprocess.run(
        [sys.executable, "-m", "tox", "exec", "-c", str(CLONE / "tox.ini"), *words],
        env=outer,
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"{MASK} /some/plugin.so" in done.stdout, done.stderr
