"""Waivers: reviewed exceptions as data, each with an end. Pure but for the file it is given; the day comes in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.model import CellKey, Json
from pytest_cudaboot.rules.spec import LOWERERS
from pytest_cudaboot.rules.tables import Table, parse_toml, read_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from pytest_cudaboot.rules.catalog import Catalog

KEYS = ("spec", "reason", "owner", "expires", "lowerer")
TABLE = "waiver"


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiver:
    """One exception.

    :param expires: the last day on which it counts.
    :param lowerer: None waives the spec's cells of every lowerer.
    """

    spec: str
    reason: str
    owner: str
    expires: date
    lowerer: str | None = None

    def covers(self, key: CellKey, today: date) -> bool:
        """Whether it excuses this cell on that day."""
        return today <= self.expires and key.spec == self.spec and self.lowerer in (None, key.lowerer)

    def to_json(self) -> Json:
        return {
            "spec": self.spec,
            "lowerer": self.lowerer,
            "reason": self.reason,
            "owner": self.owner,
            "expires": self.expires.isoformat(),
        }

    @classmethod
    def from_json(cls, data: Json) -> Waiver:
        """The waiver that `to_json` wrote down."""
        return cls(
            spec=data["spec"],
            reason=data["reason"],
            owner=data["owner"],
            expires=date.fromisoformat(data["expires"]),
            lowerer=data.get("lowerer"),
        )


def load_waivers(path: Path, lowerers: Collection[str] = LOWERERS) -> tuple[Waiver, ...]:
    """Read a waiver file: one `[[waiver]]` table for each exception.

    :param lowerers: those that there are.
    :raises CatalogError: for everything malformed; the message names file, number and key.
    """
    data = parse_toml(read_bytes(path), path)
    for key in data:
        if key != TABLE:
            raise CatalogError(f"{path.name}: {key}: unknown key; a waiver is a [[{TABLE}]] table")
    tables = data.get(TABLE, [])
    if not isinstance(tables, list) or not all(isinstance(entry, dict) for entry in tables):
        raise CatalogError(f"{path.name}: {TABLE}: write [[{TABLE}]], with two brackets on each side")
    return tuple(
        _waiver(entry, f"{path.name}: waiver {number}", lowerers) for number, entry in enumerate(tables, 1)
    )


def _waiver(data: dict[str, object], where: str, lowerers: Collection[str]) -> Waiver:
    table = Table(where, data, KEYS)
    return Waiver(
        spec=table.text("spec"),
        reason=table.text("reason"),
        owner=table.text("owner"),
        expires=table.day("expires"),
        lowerer=table.choice("lowerer", lowerers) if table.has("lowerer") else None,
    )


def find_waiver(waivers: Sequence[Waiver], key: CellKey, today: date) -> Waiver | None:
    """The first waiver that covers a cell, or None."""
    return next((waiver for waiver in waivers if waiver.covers(key, today)), None)


def waived_cells(waivers: Sequence[Waiver], cells: Iterable[CellKey], today: date) -> frozenset[CellKey]:
    """The cells that let what needs them go on, whatever becomes of them."""
    return frozenset(key for key in cells if find_waiver(waivers, key, today))


def idle_reason(waiver: Waiver, catalog: Catalog, today: date) -> str | None:
    """Why a waiver can not excuse anything, whatever the run did; None if it could."""
    if today > waiver.expires:
        return f"expired on {waiver.expires.isoformat()}"
    spec = catalog.specs.get(waiver.spec)
    if spec is None:
        return "matches nothing: the catalogue has no such spec"
    if waiver.lowerer is not None and waiver.lowerer not in spec.slots:
        return f"matches nothing: the spec has no cell for lowerer {waiver.lowerer!r}"
    return None
