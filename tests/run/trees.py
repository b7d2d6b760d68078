"""Small file trees that look like a machine's sysfs, proc and dev."""

from __future__ import annotations

from pathlib import Path

VGA, DISPLAY_3D, AUDIO, BRIDGE = "0x030000", "0x030200", "0x040300", "0x068000"
NVIDIA, AMD = "0x10de", "0x1002"


class Tree:
    """A root folder with PCI devices."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def device(self, address: str, vendor: str, kind: str) -> None:
        """A function on the bus."""
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")

    def card(self, address: str, minor: int, *, node: bool = True, kind: str = DISPLAY_3D) -> None:
        """An NVIDIA card as the kernel driver shows it."""
        self.device(address, NVIDIA, kind)
        folder = self.root / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \\t NVIDIA L4\nDevice Minor: \t {minor}\n")
        if node:
            self.touch(f"dev/nvidia{minor}")

    def touch(self, name: str, text: str = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
