"""A shim that needs no plugin, and an artifact for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.device.client import DeviceProcess

ARTIFACT = """\
module @m {
  func.func @twice(%x: tensor<2x3xf32>, %s: tensor<f32>) -> (tensor<2x3xf32>, tensor<f32>) {
    return %x, %s : tensor<2x3xf32>, tensor<f32>
  }
}
"""


@pytest.fixture(scope="session")
def build_fake(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the fake shim, with words for gcc such as `-DSTALE`."""

    def build(*words: str) -> Path:
        source, made = Path(__file__).with_name("fake_shim.c"), tmp_path_factory.mktemp("shim") / "libfake.so"
        line = f"gcc -Wall -Wextra -Werror -shared -fPIC {source} -o {made}".split()
        subprocess.run(["/usr/bin/env", *line, *words], check=True)
        return made

    return build


@pytest.fixture(scope="session")
def fake_shim(build_fake: Callable[..., Path]) -> Path:
    return build_fake("-DWITH_EXTRAS")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "twice.mlir"
    path.write_text(ARTIFACT)
    return path


@pytest.fixture
def device(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., DeviceProcess]:
    """Starts a device process with the default service."""

    def start(**env: str) -> DeviceProcess:
        made = DeviceProcess(env={"PATH": os.defpath, **env}, log_path=tmp_path / "device.log")
        request.addfinalizer(made.close)
        return made

    return start
