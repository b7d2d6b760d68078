"""Read `tolerances.toml`: how far a result may be from its reference, as data with its reason. It compares nothing."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.rules.tables import Table, parse_toml, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOLERANCES = Path(__file__).with_name("tolerances.toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """What a family of nets may be off by on a class of devices.

    :param peak: bound of a single value's difference; None if single values decide nothing.
    """

    family: str
    device: str
    median: float
    p90: float
    peak: float | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerances:
    """A tolerance file, with the hash that goes into the verdict."""

    sha256: str
    entries: tuple[Tolerance, ...]

    def of(self, family: str, device: str) -> Tolerance:
        """The tolerance of a family (`dot`) on a device class (`cpu`, `cuda`, `cuda-strict`)."""
        for entry in self.entries:
            if (entry.family, entry.device) == (family, device):
                return entry
        known = ", ".join(f"{entry.family} on {entry.device}" for entry in self.entries)
        raise UsageError(f"no tolerance for {family!r} on {device!r}; there are: {known}")


def load_tolerances(path: Path = TOLERANCES) -> Tolerances:
    """Read a tolerance file.

    :raises CatalogError: it is malformed; the message names file, table and key.
    """
    data = read_bytes(path)
    entries = tuple(
        _tolerance(f"{path.name}: [{family}.{device}]", family, device, values)
        for family, devices in parse_toml(data, path).items()
        for device, values in _tables(f"{path.name}: [{family}]", devices)
    )
    return Tolerances(sha256=hashlib.sha256(data).hexdigest(), entries=entries)


def _tables(where: str, devices: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(devices, dict):
        Table(where, {}, ()).fail("device class", f"{devices!r} is not a table; write [family.device]")
    for device, values in devices.items():
        if not isinstance(values, dict):
            Table(where, {}, ()).fail(device, f"{values!r} is not a table; write [family.device]")
        yield device, values


def _tolerance(where: str, family: str, device: str, values: Mapping[str, object]) -> Tolerance:
    table = Table(where, values, ("median", "p90", "peak", "reason"))
    return Tolerance(
        family=family,
        device=device,
        median=_bound(table, values, "median"),
        p90=_bound(table, values, "p90"),
        peak=_bound(table, values, "peak") if table.has("peak") else None,
        reason=table.text("reason"),
    )


def _bound(table: Table, values: Mapping[str, object], key: str) -> float:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
        table.fail(key, f"{value!r} is not a positive number")
    return float(value)
