"""What the kernel counts and writes of a card's link, from files as the kernel lays them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.boxes.replay import Box, Card, lay_out
from pytest_cudaboot.probes.aer import link_of, read
from pytest_cudaboot.probes.kernel_log import KernelLog

CARD, SWITCH, PORT = "0000:03:00.0", "0000:02:00.0", "0000:00:01.0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A card below a switch below a root port."""
    card = Card(
        uuid="GPU-0",
        name="L4",
        pci="00000000:03:00.0",
        capability="8.9",
        memory=1,
        minor=0,
        bridge=(PORT, SWITCH),
    )
    return Path(lay_out(Box(cards=(card,)), tmp_path, tmp_path)["CUDABOOT_BOX_ROOT"])


def test_every_bridge_above_the_card_is_read(root: Path) -> None:
    assert list(link_of(CARD, root).devices) == [CARD, SWITCH, PORT]


def test_each_device_counts_for_itself(root: Path) -> None:
    link = link_of(CARD, root)
    (root / f"sys/bus/pci/devices/{SWITCH}/aer_dev_correctable").write_text(
        "RxErr 0\nBadTLP 12\nTOTAL_ERR_COR 12\n"
    )
    (root / f"sys/bus/pci/devices/{PORT}/aer_rootport_total_err_cor").write_text("7\n")
    counted = {name: value for name, value in read(link).items() if value}

    assert counted == {f"aer.BadTLP@{SWITCH}": 12, f"root.cor@{PORT}": 7}
    assert link.observable


def test_a_machine_without_such_files_tells_nothing(tmp_path: Path) -> None:
    link = link_of(CARD, tmp_path)

    assert (list(link.devices), read(link), link.observable) == ([CARD], {}, False)


def test_only_what_is_written_from_now_on(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    file = tmp_path / "dev/kmsg"
    file.write_text("old\n")
    log = KernelLog(tmp_path)
    with file.open("a") as stream:
        stream.write("new\nhalf")
    first = log.lines()
    with file.open("a") as stream:
        stream.write(" a line\n")

    assert (first, log.lines(), log.lines()) == (["new"], ["half a line"], [])
    log.close()


def test_a_device_that_has_nothing_to_say_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    log = KernelLog(tmp_path)

    assert log.lines() == []
    assert "can not be read" in str(log.absence)  # a pipe has no end to go to


def test_a_log_that_may_not_be_read_says_why(tmp_path: Path) -> None:
    log = KernelLog(tmp_path)

    assert (log.absence, log.lines()) == ("/dev/kmsg can not be read (No such file or directory)", [])
