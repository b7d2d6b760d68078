"""What was seen of a machine before a run: the facts that a checkup judges. No behaviour beyond naming."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cudaboot.model import Gpu
from pytest_cudaboot.rules.cuda_libraries import CudaLibrary


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A file that was looked for: where it lies and who brought it, or null and where it was looked for."""

    path: str | None
    about: str = ""
    version: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryFact:
    """A CUDA library as the loader would find it for the plugin.

    :param others: other versions of it within reach.
    """

    library: CudaLibrary
    path: str | None
    via: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """The CUDA plugin that would be used.

    :param cuda: the major that it was built for, or null where nothing says so.
    :param libraries: one for each that such a plugin looks for.
    :param packages: what is installed beside it; null where it lies in no folder of packages.
    :param python: the interpreter of the environment that it lies in.
    """

    tool: Tool
    cuda: int | None = None
    libraries: tuple[LibraryFact, ...] = ()
    packages: frozenset[str] | None = None
    python: str = "python"


@dataclass(frozen=True, kw_only=True, slots=True)
class RoomFact:
    """What is left on a disk for what."""

    purpose: str
    path: str
    free: int
    writable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Everything that was looked at.

    :param absence: why there is no driver; `failure` how NVML fails.
    :param mask: `CUDA_VISIBLE_DEVICES`, and `order` `CUDA_DEVICE_ORDER`.
    :param bus: NVIDIA cards on the PCI bus, as sysfs names them.
    :param unnamed: those of them that NVML does not name.
    :param held: cards in use, each with who has it; `lease_problem` why that can not be known.
    """

    driver: str | None
    cuda: int | None
    absence: str | None
    failure: str | None
    gpus: tuple[Gpu, ...]
    mig: tuple[str, ...]
    mask: str | None
    order: str | None
    bus: tuple[str, ...]
    unnamed: tuple[str, ...]
    container: bool
    plugin: Plugin
    cpu_plugin: Tool
    gcc: Tool
    iree_compile: Tool
    lake: Tool
    rooms: tuple[RoomFact, ...]
    held: tuple[tuple[str, str], ...]
    lease_problem: str | None

    @property
    def on_cards(self) -> bool:
        """Whether `auto` means cards here: wherever there is hardware, or a driver that names some."""
        return bool(self.bus or self.gpus)

    @property
    def unclear(self) -> bool:
        """Whether only CUDA knows what the mask means: it numbers cards of several kinds in an order of its own."""
        kinds = {gpu.name for gpu in self.gpus}
        indexed = any(entry.strip().isdigit() for entry in (self.mask or "").split(","))
        return len(kinds) > 1 and indexed and self.order != "PCI_BUS_ID"
