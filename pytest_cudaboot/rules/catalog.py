"""The catalogue: every spec in file order, proved to be well formed. It reads the file it is given, nothing else."""

from __future__ import annotations

import difflib
import hashlib
import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.rules.spec import LOWERERS, ROLES, Spec, parse_spec
from pytest_cudaboot.rules.tables import parse_toml, read_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_cudaboot.model import ItemRecord

__all__ = ["Catalog", "Spec", "bind_problems", "load_catalog", "parse_catalog"]

_IDENT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_HEADER = re.compile(r"^[ \t]*\[([^\[\]\n]+)\]", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """All specs, in the file's order.

    :param sha256: of the file's bytes.
    """

    specs: Mapping[str, Spec]
    sha256: str
    path: Path


def load_catalog(path: Path, lowerers: Collection[str] | None = LOWERERS) -> Catalog:
    """Read and check a catalogue file.

    :param lowerers: those that its specs may name; None allows any.
    :raises CatalogError: for everything malformed; the message names file, table and key.
    """
    return parse_catalog(read_bytes(path), path, lowerers)


def parse_catalog(data: bytes, path: Path, lowerers: Collection[str] | None = LOWERERS) -> Catalog:
    """The same for bytes that were read elsewhere; `path` only names them."""
    specs: dict[str, Spec] = {}
    for ident, table in _tables(parse_toml(data, path), (), path):
        where = f"{path.name}: [{ident}]"
        if not _IDENT.fullmatch(ident):
            raise CatalogError(f"{where}: an id is made of letters, digits, '-', '_' and dots")
        if ident in specs:
            raise CatalogError(f"{where}: stands there twice")
        specs[ident] = parse_spec(ident, table, where, lowerers)
    order = _file_order(data.decode())
    specs = dict(sorted(specs.items(), key=lambda entry: order.get(entry[0], len(order))))
    _check_needs(specs, path)
    return Catalog(specs=MappingProxyType(specs), sha256=hashlib.sha256(data).hexdigest(), path=path)


def _tables(
    data: Mapping[str, object], prefix: tuple[str, ...], path: Path
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Each table that holds anything but tables is a spec; the others are the dots of its id."""
    for name, value in data.items():
        ident = ".".join((*prefix, name))
        if not isinstance(value, dict):
            raise CatalogError(f"{path.name}: {ident}: {value!r} stands outside of a spec's table")
        if value and all(isinstance(entry, dict) for entry in value.values()):
            yield from _tables(value, (*prefix, name), path)
        else:
            yield ident, value


def _file_order(text: str) -> dict[str, int]:
    """TOML's nesting groups ids by their first part; the headers themselves say the order of the file."""
    names = (re.sub(r"[\s\"']", "", match[1]) for match in _HEADER.finditer(text))
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _check_needs(specs: Mapping[str, Spec], path: Path) -> None:
    for spec in specs.values():
        for need in spec.needs:
            if problem := _refuse_need(spec, need, specs):
                raise CatalogError(f"{path.name}: [{spec.id}]: needs: {problem}")
    try:
        TopologicalSorter({spec.id: spec.needs for spec in specs.values()}).prepare()
    except CycleError as error:
        # graphlib lists a cycle from prerequisite to dependent; the file reads the other way.
        chain = " -> ".join(reversed(error.args[1]))
        raise CatalogError(f"{path.name}: needs: a cycle: {chain}") from None


def _refuse_need(spec: Spec, need: str, specs: Mapping[str, Spec]) -> str | None:
    if need == spec.id:
        return f"{need!r} is the spec itself"
    if need not in specs:
        return f"no spec {need!r}{_meant(need, specs)}"
    if not specs[need].gate:
        return f"{need!r} is no gate spec, and only those may be prerequisites"
    if specs[need].uncheckable:
        return f"{need!r} is uncheckable, so nothing could ever meet it"
    return None


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def bind_problems(
    catalog: Catalog,
    items: Iterable[ItemRecord],
    scope_in: Collection[str],
    outside: Collection[str] | None = None,
) -> list[str]:
    """What a full collection and the catalogue say against each other; empty if they agree.

    :param scope_in: ids of the specs in scope; the tests of others are collected without a cell.
    :param outside: ids of the specs out of scope whose tests were found and not kept; None if nobody looked.
    """
    problems: list[str] = []
    tested: set[str] = set()
    for item in items:
        if item.spec is None:
            continue
        tested.add(item.spec)
        spec = catalog.specs.get(item.spec)
        if spec is None:
            problems.append(
                f"{item.nodeid}: names the unknown spec {item.spec!r}{_meant(item.spec, catalog.specs)}"
            )
        elif problem := _refuse_role(spec, item) or (item.spec in scope_in and _refuse_lowerer(spec, item)):
            problems.append(f"{item.nodeid}: {problem}")
    bare = [ident for ident in scope_in if ident not in tested]
    problems += [f"spec {ident!r} is in scope and has no test" for ident in bare]
    return problems if outside is None else [*problems, *_untested(catalog, {*tested, *scope_in, *outside})]


def _untested(catalog: Catalog, told: Collection[str]) -> list[str]:
    """What is out of scope here must be testable elsewhere."""
    checkable = [spec.id for spec in catalog.specs.values() if not spec.uncheckable]
    return [
        f"spec {ident!r} is out of scope and has no test either" for ident in checkable if ident not in told
    ]


def _refuse_role(spec: Spec, item: ItemRecord) -> str | None:
    if spec.uncheckable:
        return f"spec {spec.id!r} is uncheckable, so it can not have a test"
    if item.role not in ROLES:
        return f"unknown role {item.role!r}; known: {', '.join(ROLES)}"
    if item.role not in spec.roles:
        return f"role {item.role!r} does not belong to {spec.id!r}, which has: {', '.join(spec.roles)}"
    return None


def _refuse_lowerer(spec: Spec, item: ItemRecord) -> str | None:
    lowerer = item.lowerer
    if lowerer is None:
        if len(spec.slots) == 1:
            return None
        return f"spec {spec.id!r} has a cell for each of {', '.join(spec.lowerers)}; the test names none"
    if spec.pair:
        return f"spec {spec.id!r} is a pair, so its tests see all lowerers and are not bound to {lowerer!r}"
    if spec.lowerers and lowerer not in spec.lowerers:
        return f"spec {spec.id!r} has no cell for lowerer {lowerer!r}, only for {', '.join(spec.lowerers)}"
    return None
