"""The PCI bus's word on NVIDIA cards, read from sysfs. It never asks the driver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NVIDIA = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers
CONTAINER_MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container", "run/secrets/kubernetes.io")


@dataclass(frozen=True, kw_only=True, slots=True)
class PciCard:
    """An NVIDIA card on the bus.

    :param address: as sysfs names it, `0000:01:00.0`.
    :param minor: N of its `/dev/nvidiaN` where that node is there, else null.
    """

    address: str
    minor: int | None


def cards(root: Path = Path("/")) -> tuple[PciCard, ...]:
    """The cards this machine has; in a container, those of them that it was given."""
    found = tuple(_card(root, device) for device in _devices(root))
    if in_container(root):
        return tuple(card for card in found if card.minor is not None)
    return found


def in_container(root: Path = Path("/")) -> bool:
    """Whether a container runtime left its mark, or the root is laid over an image."""
    marked = any((root / mark).exists() for mark in CONTAINER_MARKS)
    return marked or "overlay" in _root_types(root)


def normalized(address: str) -> str:
    """NVML's `00000000:01:00.0` and sysfs's `0000:01:00.0` as one spelling, sysfs's."""
    domain, bus, slot = address.lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{slot}"


def _root_types(root: Path) -> set[str]:
    """Types of the file systems that are mounted on `/`."""
    fields = (line.split() for line in _read(root / "proc/self/mounts").splitlines())
    return {words[2] for words in fields if len(words) > 2 and words[1] == "/"}  # noqa: PLR2004 - name, place, type


def _devices(root: Path) -> list[Path]:
    bus = root / "sys/bus/pci/devices"
    if not bus.is_dir():
        return []
    return sorted(device for device in bus.iterdir() if _is_card(device))


def _is_card(device: Path) -> bool:
    return _read(device / "vendor") == NVIDIA and _read(device / "class").startswith(DISPLAY_CLASSES)


def _card(root: Path, device: Path) -> PciCard:
    information = _read(root / "proc/driver/nvidia/gpus" / device.name / "information")
    minors = [
        line.split(":")[1].strip() for line in information.splitlines() if line.startswith("Device Minor")
    ]
    node = int(minors[0]) if minors and minors[0].isdigit() else None
    present = node is not None and (root / f"dev/nvidia{node}").exists()
    return PciCard(address=device.name, minor=node if present else None)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # a card that falls off the bus takes its files along
        return ""
