"""Prerequisites. BOOTSTRAP.md#prerequisites"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml, pci
from pytest_cudaboot.probes.toolchain import distribution_of
from pytest_cudaboot.project import Project
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle

from .conftest import Trained
from .cuda import CudaView, cuda_version
from .nets import convolving_net

SEED = 22
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TOOLKIT = re.compile(r"cuda(-[\d.]+)?/(bin|lib64)")


# > An NVIDIA GPU with a recent driver
@pytest.mark.spec("pre.gpu")
def test_driver_nvml_and_bus_agree_on_the_cards(
    gpus: tuple[Gpu, ...], cuda_view: Callable[..., CudaView], evidence: Evidence
) -> None:
    ours = {card.uuid: pci.normalized(card.pci) for card in gpus}
    by_nvml = {card.uuid for card in nvml.look().gpus}
    by_cuda = cuda_view(mask=",".join(ours)).uuids
    on_bus = [card.address for card in pci.cards()]

    evidence.measure(nvml=len(by_nvml), cuda=len(by_cuda), bus=len(on_bus) or "unobservable")
    # Other cards of the machine may be masked, denied or somebody else's; a sandbox may have no bus to look at.
    if not ours.keys() <= by_nvml or ours.keys() != set(by_cuda):
        raise BoxError(f"the run has {sorted(ours)}, NVML names {sorted(by_nvml)}, CUDA {by_cuda}")
    if on_bus and not set(ours.values()) <= set(on_bus):
        raise BoxError(f"the run's cards are at {sorted(ours.values())}, and the bus has {on_bus}")


# > one that supports the plugin's CUDA version
@pytest.mark.spec("pre.driver-recent")
def test_driver_supports_the_plugins_cuda(lowerer: LowererHandle, evidence: Evidence) -> None:
    driver = lowerer.call("driver")["version"]
    plugin = cuda_version(lowerer.call("facts"))

    evidence.measure(driver_cuda=driver, plugin_cuda=plugin or "unknown")
    assert plugin is not None, (
        "the plugin has no attribute `cuda_version`, so nobody knows what it was built for"
    )
    # Within a major every driver runs every toolkit: NVIDIA's minor-version compatibility.
    if driver // 1000 < plugin // 1000:
        raise BoxError(f"the driver supports CUDA {driver}, and the plugin was built for {plugin}")


@pytest.mark.spec("pre.toolkit")
def test_whether_the_toolkit_is_needed(
    train: Callable[..., Trained], outer: Mapping[str, str], measure: Callable[..., None]
) -> None:
    # Only the toolkit's own places: the driver may be found by the same variables.
    given = {name: outer[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in outer}
    without = {
        name: ":".join(place for place in places.split(":") if not TOOLKIT.search(place))
        for name, places in given.items()
    }

    trained = train("linear", "--steps", "2", env={**without, "CUDA_HOME": None, "CUDA_PATH": None})

    measure(steps_without_toolkit=len(trained.steps), hidden=without != given)


# > The CUDA libraries, above all `libcudart`, on the loader path or as `nvidia-*` packages in the same venv
@pytest.mark.spec("pre.libcudart")
def test_cudart_is_mapped_and_from_where(
    session: Callable[[Path], SessionHandle], lowerer: LowererHandle, project: Project, evidence: Evidence
) -> None:
    net = convolving_net(project)
    session(net.step.path).invoke(net.step.inputs(SEED))
    mapped = [
        path for name, paths in lowerer.mapped().items() if name.startswith("libcudart.so") for path in paths
    ]

    owners = {path: distribution_of(Path(path)) for path in mapped}
    evidence.note(cudart={path: owner.name if owner else "the system" for path, owner in owners.items()})
    assert len(mapped) == 1, f"one libcudart, not {mapped}"


# > Python 3.10+ with pip; it installs the plugin, and trains nothing
@pytest.mark.spec("pre.python")
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("package", ["jax-cuda12-pjrt", "jax-cuda13-pjrt"])
def test_the_plugins_wheel_is_for_every_python(
    run: Runner, tmp_path: Path, package: str, python: str
) -> None:
    words = [
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--only-binary=:all:",
        "--target",
        str(tmp_path / "nowhere"),
    ]

    done = run(
        [sys.executable, "-m", "pip", "install", *words, "--python-version", python, package], device=False
    )

    assert re.search(rf"Would install {package}-\d", done.stdout)
