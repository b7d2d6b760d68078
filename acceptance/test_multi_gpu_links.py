"""Multi-GPU: the links of the cards. BOOTSTRAP.md#multi-gpu"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_cudaboot.errors import UnsupportedError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import aer, nvml
from pytest_cudaboot.rules.hardware import Change, load_policy
from pytest_cudaboot.rules.kernel_lines import read_line
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.monitor import Monitor

from .conftest import Trained

CARD, BRIDGE = "0000:01:00.0", "0000:00:01.0"
MEMORY = "mce: [Hardware Error]: Machine check events logged"
LINK = f"pcieport {BRIDGE}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)"
COUNTS = ("pcie.bad_tlp", "pcie.replay")  # by the card's own word; the kernel counts for itself


@pytest.fixture
def monitor(gpu: Gpu) -> Iterator[Monitor]:
    """A watch of this test's own: the run's is in another process."""
    watching = Monitor([gpu], load_policy(), nvml.simulated_root() or Path("/"))
    yield watching
    watching.stop()


@pytest.fixture
def bridge(tmp_path: Path) -> Path:
    """The folder of a bridge, with a card below it, as the kernel shows them."""
    folder = tmp_path / f"sys/devices/pci0000:00/{BRIDGE}"
    (folder / CARD).mkdir(parents=True)
    for device in (folder, folder / CARD):
        (device / "aer_dev_correctable").write_text("RxErr 9\nBadTLP 35\nTOTAL_ERR_COR 44\n")
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / CARD).symlink_to(folder / CARD)
    return folder


# > A bad riser or slot shows itself under load only, as a storm of corrected PCIe errors
@pytest.mark.spec("multi.aer")
def test_a_card_at_work_raises_no_storm(
    gpu: Gpu, monitor: Monitor, train: Callable[..., Trained], evidence: Evidence
) -> None:
    silent = monitor.unobservable()[gpu.uuid]
    if "aer" in silent and all(counter in silent for counter in COUNTS):
        raise UnsupportedError(f"neither NVML nor the kernel counts PCIe errors of {gpu.uuid} here: {silent}")

    monitor.begin("at work", [gpu.uuid])
    train("linear", "--steps", "1000")
    seen, crossings = monitor.end("at work", failed=False)

    facts = seen["hardware"][gpu.uuid]
    evidence.measure(added=facts.get("added", {}), moved_gb=facts.get("moved_gb", "unobservable"))
    evidence.note(unobservable=silent)
    assert [crossing.alarm.words for crossing in crossings] == []


# > what is damaged on its way up is counted by the bridge above
@pytest.mark.spec("multi.aer", role="canary")
def test_a_storm_that_the_bridge_alone_counts_is_seen(
    bridge: Path, tmp_path: Path, evidence: Evidence
) -> None:
    link = aer.link_of(CARD, tmp_path)
    before = aer.read(link)
    (bridge / "aer_dev_correctable").write_text("RxErr 9\nBadTLP 4035\nTOTAL_ERR_COR 4044\n")
    added = {name: value - before[name] for name, value in aer.read(link).items() if value != before[name]}

    evidence.measure(added=added)
    alarms = load_policy().alarms(Change(seconds=10.0, deltas=added, gigabytes=1.0))
    assert [alarm.counter for alarm in alarms] == [f"aer.BadTLP@{BRIDGE}"]


# > and a few of them are nothing
@pytest.mark.spec("multi.aer", role="canary")
def test_a_few_errors_and_old_ones_are_none(bridge: Path, tmp_path: Path, evidence: Evidence) -> None:
    link = aer.link_of(CARD, tmp_path)
    assert link.devices[BRIDGE] == bridge
    counted = aer.read(link)

    evidence.measure(old=counted)
    assert counted == {
        f"aer.{name}@{device}": n for device in (CARD, BRIDGE) for name, n in (("RxErr", 9), ("BadTLP", 35))
    }
    assert load_policy().alarms(Change(seconds=10.0, deltas={f"aer.BadTLP@{BRIDGE}": 5}, gigabytes=1.0)) == []


# > a bare `Hardware Error` there may be a corrected memory error of the machine
@pytest.mark.spec("multi.aer", role="canary")
def test_a_memory_error_in_the_log_is_not_taken_for_one(evidence: Evidence) -> None:
    evidence.act()

    assert read_line(MEMORY) is None
    assert read_line(LINK) is not None
