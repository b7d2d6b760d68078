"""What a line of the kernel's log says of a card or its link. Pure; most lines say nothing.

It looks twice: for words that only PCIe's error reporting and NVIDIA's driver use, then for the device and what befell
it. A corrected memory error of the machine is told as a "Hardware Error" too, and is neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FIRST_LOOK = ("PCIe Bus Error", "NVRM: Xid")
_BUS_ERROR = re.compile(
    r"\b(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: "
    r"severity=(?P<severity>Correct|Uncorrect)\w*(?P<fatal> \(Fatal\))?",
    re.IGNORECASE,
)
_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?\): (?P<code>\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelEvent:
    """One line's meaning.

    :param address: the device on the bus, as sysfs names it; of an XID without the function.
    :param kind: `corrected`, `uncorrected`, `fatal` or `xid`.
    """

    address: str
    kind: str
    line: str
    xid: int | None = None

    def concerns(self, address: str) -> bool:
        """Whether it is about that device."""
        return address == self.address or (
            self.xid is not None and address.rpartition(".")[0] == self.address
        )


def read_line(line: str) -> KernelEvent | None:
    """The event that a line tells of, or None."""
    if not any(words in line for words in FIRST_LOOK):
        return None
    if found := _XID.search(line):
        return KernelEvent(address=_short(found["address"]), kind="xid", line=line, xid=int(found["code"]))
    if found := _BUS_ERROR.search(line):
        corrected = found["severity"].lower() == "correct"
        kind = "corrected" if corrected else "fatal" if found["fatal"] else "uncorrected"
        return KernelEvent(address=_short(found["address"]), kind=kind, line=line)
    return None


def _short(address: str) -> str:
    """The domain has four digits, as in sysfs."""
    domain, rest = address.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"
