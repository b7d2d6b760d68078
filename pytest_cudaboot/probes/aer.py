"""What the kernel counts of PCIe errors: of a device, and of each bridge above it. Read from sysfs, never reset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEVERITIES = {"correctable": "aer", "nonfatal": "aer_nonfatal", "fatal": "aer_fatal"}
ROOT_TOTALS = ("cor", "nonfatal", "fatal")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A card and what is above it.

    :param devices: folders by address, the card's own first, the root port last.
    """

    devices: dict[str, Path]

    @property
    def observable(self) -> bool:
        """Whether the kernel counts anything here; in most virtual machines it does not."""
        return any((folder / "aer_dev_correctable").exists() for folder in self.devices.values())


def link_of(address: str, root: Path = Path("/")) -> Link:
    """Follow a card's entry to where it really lies: each device's folder is in that of the bridge above it."""
    place = root / "sys/bus/pci/devices" / address
    found = {folder.name: folder for folder in _upward(place) if _ADDRESS.fullmatch(folder.name)}
    return Link(devices=found or {address: place})


def read(link: Link) -> dict[str, int]:
    """Every counter, as `family.name@address`; a device that has left the bus takes its files along."""
    return dict(counter for address, folder in link.devices.items() for counter in _counters(address, folder))


def _upward(place: Path) -> Iterator[Path]:
    real = place.resolve()
    yield from (real, *real.parents)


def _counters(address: str, folder: Path) -> Iterator[tuple[str, int]]:
    for severity, family in SEVERITIES.items():
        for line in _lines(folder / f"aer_dev_{severity}"):
            name, _, value = line.partition(" ")
            if value.strip().isdecimal() and not name.startswith("TOTAL_"):
                yield f"{family}.{name}@{address}", int(value)
    for total in ROOT_TOTALS:
        for line in _lines(folder / f"aer_rootport_total_err_{total}"):
            if line.strip().isdecimal():
                yield f"root.{total}@{address}", int(line)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
