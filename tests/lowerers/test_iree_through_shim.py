"""IREE through a shim of the project's own: the same seam, with the module's text as its signature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.errors import ShimError, SignatureError
from pytest_cudaboot.lowerers.base import Lowerer, LowererConfig, make_lowerer


@pytest.fixture
def lowerer(fake_shim: Path) -> Lowerer:
    return make_lowerer(LowererConfig(name="iree", platform="cpu", shim=str(fake_shim)))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "twice.vmfb"
    path.touch()
    return path


def test_a_module_runs_through_the_shim(lowerer: Lowerer, module: Path, artifact: Path) -> None:
    session = lowerer.open_session(module, artifact)

    made = session.invoke("twice", [np.ones((2, 3), np.float32), np.ones((), np.float32)])
    assert [array.tolist() for array in made] == [[[2.0] * 3] * 2, 2.0]
    session.close()


def test_the_facts_name_the_shim(lowerer: Lowerer, fake_shim: Path) -> None:
    assert lowerer.facts()["shim"] == str(fake_shim)


def test_a_module_without_its_text_has_no_signature(lowerer: Lowerer, module: Path) -> None:
    with pytest.raises(SignatureError, match=r"twice.vmfb: a shim does not tell a module's signature"):
        lowerer.open_session(module)


def test_what_the_shim_does_not_load_is_no_session(lowerer: Lowerer, artifact: Path) -> None:
    with pytest.raises(ShimError, match=r"the IREE shim made no session of '/gone.vmfb'"):
        lowerer.open_session(Path("/gone.vmfb"), artifact)
