"""What a compiled module asks of a card: the PTX target in its bytes against capability and driver. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_cudaboot.model import Gpu

_TARGET = re.compile(rb"^\.target\s+sm_(?P<number>[1-9][0-9]{1,2})(?P<suffix>[af]?)\b", re.MULTILINE)
_VERSION = re.compile(rb"^\.version\s+(?P<major>[0-9]+)\.(?P<minor>[0-9]+)", re.MULTILINE)
_OTHER_CODE = (b"\x7fELF", b"\x03\x02\x23\x07")  # of a CPU or an AMD card; SPIR-V
_ENTRY = re.compile(rb"\.entry\s+(?P<name>[\w$]+)")

# PTX is numbered apart from CUDA: each entry is the first PTX of a CUDA release, as 1000 x major + 10 x minor.
_PTX_OF_CUDA = (
    *(((7, minor), 11000 + 10 * minor) for minor in range(9)),
    *(((8, minor), 12000 + 10 * minor) for minor in range(6)),
    ((8, 6), 12070),
    ((8, 7), 12080),
    ((8, 8), 12090),
    *(((9, minor), 13000 + 10 * minor) for minor in range(10)),
)

# Models as NVML names them, and what their architecture is called by compilers; the first that fits counts.
_CARDS = (
    (r"\bA(100|30)\b", (8, 0)),
    (r"\bRTX 30[5-9]0\b|\bRTX A\d{3,4}\b|\bA(2|10|10G|16|40)\b", (8, 6)),
    (r"\bRTX 40[5-9]0\b|\bAda\b|\bL(4|20|40|40S)\b", (8, 9)),
    (r"\bG?H(100|200)\b|\bH(20|800)\b", (9, 0)),
    (r"\bG?B(100|200)\b", (10, 0)),
    (r"\bG?B300\b", (10, 3)),
    (r"\bRTX 50[5-9]0\b|\bRTX PRO \d{4} Blackwell\b", (12, 0)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ptx:
    """One executable of a module.

    :param part: its name in the module.
    :param capability: of `.target`, (8, 6) for sm_86.
    :param suffix: `a` runs on that architecture alone, `f` on its family; empty is compiled forward by the driver.
    :param version: of the PTX language.
    :param entries: its kernels.
    """

    part: str
    capability: tuple[int, int]
    suffix: str
    version: tuple[int, int]
    entries: tuple[str, ...]

    @property
    def target(self) -> str:
        return f"{chip_of(self.capability)}{self.suffix}"


def chip_of(capability: tuple[int, int]) -> str:
    """`sm_86` for (8, 6)."""
    return f"sm_{capability[0]}{capability[1]}"


def read_ptx(parts: Mapping[str, bytes]) -> tuple[Ptx, ...]:
    """The PTX in a module's parts; what is compiled for another device has none."""
    return tuple(_ptx(name, data) for name, data in parts.items() if _TARGET.search(data))


def _ptx(name: str, data: bytes) -> Ptx:
    target, version = _TARGET.search(data), _VERSION.search(data)
    if target is None or version is None:
        raise TargetError(f"{name} has a PTX target and no PTX version, or the reverse")
    number = int(target["number"])
    return Ptx(
        part=name,
        capability=(number // 10, number % 10),
        suffix=target["suffix"].decode(),
        version=(int(version["major"]), int(version["minor"])),
        entries=tuple(dict.fromkeys(match["name"].decode() for match in _ENTRY.finditer(data))),
    )


def require_loadable(parts: Mapping[str, bytes], gpu: Gpu, driver_cuda: int | None = None) -> None:
    """Refuse, before it is loaded, what the driver would refuse.

    :param driver_cuda: the newest CUDA of the driver, as 1000 x major + 10 x minor; None if it is not known.
    :raises TargetError: the module is for another kind of card, or in a newer PTX than the driver knows.
    """
    found = read_ptx(parts)
    # A graph that computes nothing has no kernels at all, and runs anywhere.
    if not found and any(code in data for data in parts.values() for code in _OTHER_CODE):
        raise TargetError(
            f"the module has no PTX, so it is not for {gpu.name}; compile it with IREE_BACKEND=cuda"
        )
    for ptx in found:
        if not _runs_on(ptx, gpu.capability):
            raise TargetError(
                f"Step 4: {ptx.part} is for {ptx.target}, and {gpu.name} is {chip_of(gpu.capability)}: PTX is compiled "
                f"forward, never back; compile it with IREE_CHIP={chip_of(gpu.capability)} or an older one"
            )
        needed = cuda_of(ptx.version)
        if driver_cuda is not None and (needed is None or needed > driver_cuda):
            raise TargetError(
                f"Step 4: {ptx.part} is PTX {ptx.version[0]}.{ptx.version[1]}, which needs a driver for CUDA "
                f"{_written(needed)}, and this one is for {_written(driver_cuda)}; update the driver"
            )


def cuda_of(version: tuple[int, int]) -> int | None:
    """The CUDA release that brought a version of PTX; None for one that is newer than this table."""
    if version < (7, 0):
        return 10000
    return dict(_PTX_OF_CUDA).get(version)


def documented_capability(name: str) -> tuple[int, int] | None:
    """The compute capability of a model, by the table; None if the table does not have it."""
    return next((capability for pattern, capability in _CARDS if re.search(pattern, name)), None)


def _runs_on(ptx: Ptx, capability: tuple[int, int]) -> bool:
    if ptx.suffix == "a":
        return ptx.capability == capability
    if ptx.suffix == "f":
        return ptx.capability[0] == capability[0] and ptx.capability <= capability
    return ptx.capability <= capability


def _written(cuda: int | None) -> str:
    return "of a later day than this table" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
