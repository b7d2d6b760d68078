"""What XLA's allocator takes of a card: the plugin's own line, and whether what is asked for is still there.

The line says what was asked for, also where another client holds most of the card; only a measurement tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_FRACTION = 0.75  # the plugin's, of the driver's total, when it is given no option
_LINE = re.compile(
    r"XLA backend (?P<how>allocating|will use up to) [\d.]+GiB \((?P<bytes>\d+) bytes\) "
    r"on device (?P<device>\d+)(?: for (?P<allocator>\w+))?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """A line in which the plugin says what an allocator may take.

    :param bytes: the most that it takes.
    :param device: ordinal inside the process's mask.
    :param up_front: whether it takes all of it with the first buffer, or grows with use.
    """

    bytes: int
    device: int
    allocator: str | None
    up_front: bool


def announcements(log: str) -> list[Announcement]:
    """The allocator lines in what a process wrote, in order; empty if the plugin said nothing or says it otherwise."""
    return [
        Announcement(
            bytes=int(line["bytes"]),
            device=int(line["device"]),
            allocator=line["allocator"],
            up_front=line["how"] == "allocating",
        )
        for line in _LINE.finditer(log)
    ]


def refusal(*, total: int, used: int, fraction: float) -> str | None:
    """Why a client that asks for a fraction of a card should not be started beside what is there; None if it may.

    :param total: the driver's, bytes.
    :param used: bytes in use on the card by anybody.
    """
    if used + fraction * total <= total:
        return None
    together = used / total + fraction
    return (
        f"{fraction:g} of the card is asked for, and {used / total:.2f} of it ({used} bytes) is in use: together "
        f"{together:.2f}; end what holds it, or ask for less with LEAN_MLIR_MEM_FRACTION"
    )
