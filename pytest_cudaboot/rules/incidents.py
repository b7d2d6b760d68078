"""Incidents of the field and the specs that would have caught them. It reads the file it is given, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.rules.tables import Table, parse_toml, read_bytes

KEYS = ("tags", "what", "specs", "fix", "reason")
TAGS = {
    "H": "any machine",
    "S": "a file of the checkout",
    "E": "the host",
    "G": "a card",
    "M": "several cards",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident:
    """Something that went wrong once.

    :param specs: those that would have caught it; where there is none, `reason` says why none can.
    :param fix: what puts it right.
    """

    id: str
    tags: tuple[str, ...]
    what: str
    specs: tuple[str, ...]
    fix: str
    reason: str


def load_incidents(path: Path) -> tuple[Incident, ...]:
    """Read and check a file of incidents.

    :raises CatalogError: for everything malformed; the message names file, table and key.
    """
    return tuple(_incident(path, name, data) for name, data in parse_toml(read_bytes(path), path).items())


def _incident(path: Path, name: str, data: object) -> Incident:
    if not isinstance(data, dict):
        raise CatalogError(f"{path.name}: {name}: {data!r} is no table")
    table = Table(f"{path.name}: [{name}]", data, KEYS)
    specs = table.texts("specs")
    if bool(specs) == table.has("reason"):
        table.fail("specs", "an incident has specs, or a reason why none can catch it, and not both")
    return Incident(
        id=name,
        tags=table.texts("tags", tuple(TAGS)),
        what=table.text("what"),
        specs=specs,
        fix=table.text("fix") if specs else "",
        reason="" if specs else table.text("reason"),
    )


def load_planned(path: Path) -> Mapping[str, str]:
    """Specs that are bound to and not there yet, and what each waits for; none where there is no such file."""
    if not path.is_file():
        return {}
    return {name: str(reason) for name, reason in parse_toml(read_bytes(path), path).items()}


def render(incidents: tuple[Incident, ...], planned: Mapping[str, str]) -> str:
    """The map as Markdown."""
    return "".join(f"{line}\n" for line in _lines(incidents, planned))


def _lines(incidents: tuple[Incident, ...], planned: Mapping[str, str]) -> Iterator[str]:
    caught = [incident for incident in incidents if incident.specs]
    yield "# Incidents"
    yield ""
    yield "What bit people while they brought up such a pipeline, and which spec goes red if it comes back. Made by"
    yield "`cudaboot doc incidents` from `acceptance/incidents.toml`; edit that file, not this one. A spec in *italics* is"
    yield "planned: nothing tests it yet."
    yield ""
    yield f"{len(caught)} of {len(incidents)} have a spec; for the others the reason is told."
    yield ""
    yield f"Where it shows: {', '.join(f'{tag} {words}' for tag, words in TAGS.items())}."
    yield ""
    yield "| incident | where | what happened | caught by | cure, or why nothing catches it |"
    yield "|---|---|---|---|---|"
    for incident in incidents:
        specs = ", ".join(f"*{spec}*" if spec in planned else f"`{spec}`" for spec in incident.specs)
        cure = incident.fix or incident.reason
        yield f"| {incident.id} | {', '.join(incident.tags)} | {incident.what} | {specs or 'none'} | {cure} |"
