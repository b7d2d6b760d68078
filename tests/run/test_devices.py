"""A device process is believed for what its client says, not for what it was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.model import Gpu, Json
from pytest_cudaboot.probes.lease import obstacles
from pytest_cudaboot.run.devices import Devices
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.platforms import proved_platform

# A lowerer that describes its client as being on the platform that its plugin is called after.
STAND_IN = """
class Lowerer:
    def __init__(self, config):
        self.told = config.plugin

    def facts(self):
        return {"describe": {"platform": self.told} if self.told else {}, "mapped": {}}

    def close(self):
        pass
"""


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Devices]:
    """A worker's devices, which find the stand-in lowerer and have no card."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    made = Devices({"PATH": os.defpath, "PYTHONPATH": str(tmp_path)}, None, tmp_path / "logs", "gw0")
    yield made
    made.leave()


@pytest.fixture
def evidence() -> Evidence:
    made = Evidence(deadline=0.0)
    made.allow(60.0)
    return made


def config(platform: str, told: str | None) -> LowererConfig:
    return LowererConfig(
        name="xla", platform=platform, shim="/s.so", plugin=told, implementation="stand_in:Lowerer"
    )


# A shim that tells nothing of itself, and loads its plugin with the first session.
SILENT = """
from types import SimpleNamespace
class Lowerer:
    def __init__(self, config):
        self.mapped = {}
        self.loads = config.environment["LOADS"]

    def open_session(self, path, source):
        self.mapped = {self.loads: ["/usr/lib/" + self.loads]}
        return SimpleNamespace(signature=None, close=lambda: None)

    def facts(self):
        return {"describe": {}, "mapped": self.mapped}

    def close(self):
        pass
"""


@pytest.mark.parametrize("loads", ["libcuda.so.1", "libcudart.so.12"])
def test_a_silent_shim_is_held_to_its_platform_when_it_has_loaded_its_plugin(
    devices: Devices, evidence: Evidence, tmp_path: Path, loads: str
) -> None:
    (tmp_path / "silent.py").write_text(SILENT)
    silent = replace(
        config("cuda", "/plugin.so"), implementation="silent:Lowerer", environment={"LOADS": loads}
    )
    handle = devices.open(silent, evidence)

    if loads.startswith("libcuda.so"):
        handle.open_session(tmp_path)
        assert list(handle.facts["mapped"]) == [loads]
        return
    with pytest.raises(BoxError, match="has not mapped libcuda"):
        handle.open_session(tmp_path)


def test_where_it_ran_is_the_clients_word(devices: Devices, evidence: Evidence) -> None:
    devices.open(config("cpu", "cpu"), evidence)

    assert evidence.platform == "cpu"


def test_a_client_on_another_platform_is_a_box_in_contradiction(devices: Devices, evidence: Evidence) -> None:
    with pytest.raises(BoxError, match=r"^cpu runs on platform 'cpu', and this run is on 'cuda'"):
        devices.open(config("cuda", "cpu"), evidence)

    assert (evidence.platform, evidence.gpus) == (None, set())


def test_what_was_refused_is_not_kept_warm(devices: Devices, evidence: Evidence) -> None:
    for _ in range(2):
        with pytest.raises(BoxError, match="says nothing of its platform, and its process has not mapped"):
            devices.open(config("cuda", None), evidence)


@pytest.mark.parametrize(
    ("platform", "facts"),
    [
        pytest.param("cuda", {"mapped": {"libcuda.so.570.86": ["/usr/lib/libcuda.so.570.86"]}}, id="driver"),
        pytest.param("cpu", {"mapped": {}}, id="the CPU needs none"),
        pytest.param("cuda", {"describe": {"platform": "cuda"}}, id="its own word"),
    ],
)
def test_a_platform_is_proved(platform: str, facts: Json) -> None:
    assert proved_platform(config(platform, None), facts) == platform


def test_cudart_alone_is_no_driver() -> None:
    with pytest.raises(BoxError, match="has not mapped libcuda"):
        proved_platform(config("cuda", None), {"mapped": {"libcudart.so.12": ["/libcudart.so.12"]}})


CARDS = tuple(
    Gpu(index=int(n), uuid=f"GPU-{n}", name="N", capability=(9, 0), memory=1, pci=f"00000000:0{n}:00.0")
    for n in "12"
)


@pytest.fixture
def on_a_card(tmp_path: Path) -> Iterator[Devices]:
    environ = {"CUDABOOT_LEASE_DIR": str(tmp_path / "leases")}
    made = Devices(environ, CARDS[0], tmp_path / "logs", "gw0")
    yield made
    made.leave()


def test_a_gang_has_the_locks_of_all_its_cards(on_a_card: Devices, tmp_path: Path) -> None:
    on_a_card.hold(CARDS)

    assert len(on_a_card.locks) == 2
    assert on_a_card.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    busy = obstacles([card.uuid for card in CARDS], folder=tmp_path / "leases")
    assert [obstacle.uuid for obstacle in busy] == ["GPU-1", "GPU-2"]


def test_after_a_gang_the_worker_has_left_all_but_its_own_card(on_a_card: Devices, tmp_path: Path) -> None:
    on_a_card.hold(CARDS)
    assert on_a_card.locks
    on_a_card.hold(())

    assert obstacles([card.uuid for card in CARDS], folder=tmp_path / "leases") == ()
    assert (on_a_card.gpus, len(on_a_card.locks)) == (CARDS[:1], 1)
