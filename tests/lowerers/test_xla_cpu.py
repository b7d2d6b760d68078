"""The reference project's shim on real PJRT plugins, which have no need of a card."""

from __future__ import annotations

import os
import site
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.base import Array, LowererConfig
from pytest_cudaboot.lowerers.build import build_shim
from pytest_cudaboot.model import Json, to_json
from pytest_cudaboot.probes.toolchain import distribution_of, find_cpu_plugin

REFERENCE = Path(__file__).parents[2] / "fixtures/reference"
BUDGET = 120.0

PLUGINS = {
    "xla_cpu_pjrt": ("xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", [0, 81]),
    "lammps_jax_pjrt_cpu": ("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", [0, 115]),
}

Start = Callable[..., DeviceProcess]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(REFERENCE, tmp_path_factory.mktemp("build"), env=os.environ)


@pytest.fixture(params=sorted(PLUGINS))
def plugin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(device: Start, shim: Path, plugin: str) -> tuple[DeviceProcess, Json]:
    """A device process with the plugin loaded, and its facts."""
    relative, _ = PLUGINS[plugin]
    path = find_cpu_plugin({"CUDABOOT_CPU_PLUGIN": site.getsitepackages()[0] + f"/{relative}"}, []).path
    config = LowererConfig(
        name="xla", platform="cpu", shim=str(shim), plugin=str(path), environment={"PJRT_PLUGIN": str(path)}
    )
    process = device(**config.environment)
    return process, process.call("open", budget=BUDGET, config=to_json(config))


def load(process: DeviceProcess, net: str) -> Json:
    loaded: Json = process.call("session_open", budget=BUDGET, path=str(REFERENCE / f"nets/{net}.mlir"))
    return loaded


def inputs(session: Json) -> list[Array]:
    """Small seeded values of the signature's shapes."""
    random = np.random.default_rng(1)
    shapes = [tensor["shape"] for tensor in session["signature"]["inputs"]]
    return [0.1 * random.standard_normal(shape, np.float32) for shape in shapes]


def test_what_loaded_is_what_was_asked_for(
    opened: tuple[DeviceProcess, Json], plugin: str, shim: Path
) -> None:
    facts = opened[1]
    path = Path(facts["describe"]["plugin"])
    owner = distribution_of(path)

    assert facts["describe"]["platform"] == "cpu"
    assert facts["describe"]["api"] == PLUGINS[plugin][1]
    assert facts["mapped"][path.name] == [str(path)]
    assert facts["mapped"]["libpjrt_ffi.so"] == [str(shim)]
    assert owner is not None
    assert owner.name.replace("-", "_") == plugin


def test_the_forward_pass_is_numpys(opened: tuple[DeviceProcess, Json]) -> None:
    process = opened[0]
    session = load(process, "linear_fwd")
    x, weights, bias = inputs(session)
    made = process.call(
        "invoke", budget=BUDGET, session=session["session"], fn="m.linear_fwd", arrays=[x, weights, bias]
    )

    assert np.allclose(made[0], x.astype(float) @ weights + bias, atol=1e-5)


def test_training_inside_the_process_lowers_the_loss(opened: tuple[DeviceProcess, Json]) -> None:
    process = opened[0]
    session = load(process, "linear_train_step")
    x, weights, bias, _, labels = inputs(session)
    onehot = np.eye(labels.shape[1], dtype=np.float32)[np.arange(labels.shape[0]) % labels.shape[1]]
    looped = process.call(
        "repeat",
        budget=BUDGET,
        session=session["session"],
        fn="linear_train_step",
        arrays=[x, weights, bias, np.float32(0.5), onehot],
        n=20,
        feedback=[(0, 1), (1, 2)],
        loss=2,
    )

    assert looped["losses"] == sorted(looped["losses"], reverse=True)
    assert looped["losses"][-1] < looped["losses"][0] - 0.1


def test_a_transposed_input_is_refused_in_the_shims_words(opened: tuple[DeviceProcess, Json]) -> None:
    process = opened[0]
    session = load(process, "linear_fwd")
    x, weights, bias = inputs(session)

    with pytest.raises(
        ShimError, match=r"(?s)returned 1 \(guard\)\n\[pjrt_ffi\] .*input 1 .*784x10.*10x784"
    ) as caught:
        process.call(
            "invoke", budget=BUDGET, session=session["session"], fn="linear_fwd", arrays=[x, weights.T, bias]
        )
    assert caught.value.code == 1


def test_a_plugin_that_is_not_there_is_named_and_nothing_else_is_tried(device: Start, shim: Path) -> None:
    config = LowererConfig(name="xla", platform="cpu", shim=str(shim))
    with pytest.raises(ShimError, match=r"(?s)\[pjrt_ffi\] .*/gone/plugin.so"):
        device(PJRT_PLUGIN="/gone/plugin.so").call("open", budget=BUDGET, config=to_json(config))
