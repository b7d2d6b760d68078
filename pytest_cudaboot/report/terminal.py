"""What a person reads: the header before, the table and the verdict after. It decides nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from pytest_cudaboot.model import Json, RunRecord
from pytest_cudaboot.rules.verdict import summary_line

MARKUP = {
    "holds": {"green": True},
    "broken": {"red": True, "bold": True},
    "expired": {"yellow": True},
    "blocked": {"purple": True},
    "unsupported": {"cyan": True},
    "not-run": {"yellow": True},
    "waived": {"yellow": True},
    "accept": {"green": True, "bold": True},
}
BAD = {"red": True, "bold": True}
PLAIN: dict[str, bool] = {}
MAX_REASONS = 12
MAX_REASON_CHARS = 240
SEPARATOR = " · "


Part = tuple[str, dict[str, bool]]  # a piece of a line, and how pytest's writer shall mark it up


class Writer(Protocol):
    """Where lines go; pytest's terminal writer is one."""

    @property
    def fullwidth(self) -> int:
        """Columns of the terminal."""

    def write(self, msg: str, *, flush: bool = False, **markup: bool) -> None:
        """Write a piece of a line."""

    def line(self, s: str = "", **markup: bool) -> None:
        """Write a line."""


def header(run: RunRecord, notes: Sequence[str]) -> list[str]:
    """The lines before the run: project, cards, plugin, scope; `notes` say what protection is off."""
    lines = [f"project {run.project['name']}{SEPARATOR}{run.project['path']}", *_cards(run)]
    plugin = run.toolchain.get("plugin", {})
    if plugin.get("path"):
        words = (plugin.get("distribution"), plugin.get("version"), plugin.get("found_via"))
        lines.append(f"xla through {plugin['path']} ({', '.join(str(word) for word in words if word)})")
    else:
        lines.append(f"xla has no PJRT plugin for {run.platform}: {plugin.get('absence')}")
    if run.scope_in or run.scope_out:
        lines += [f"scope {len(run.scope_in)} specs in, {len(run.scope_out)} out", *_outside(run)]
    return [f"cudaboot: {line}" for line in [*lines, *notes]]


def write(writer: Writer, verdict: Json, path: str, *, table: bool) -> None:
    """Print a verdict.

    :param path: where the whole of it lies.
    :param table: whether the cells are shown as well.
    """
    blank: list[Part] = []
    lines = [blank, *cells(verdict, writer.fullwidth), blank] if table else []
    for line in [*lines, *closing(verdict, path)]:
        for text, markup in line:
            writer.write(text, **markup)
        writer.line()


def cells(verdict: Json, width: int) -> Iterator[list[Part]]:
    """The cells in document order: heading, then a row each, with the reason under what does not hold."""
    rows = [(cell, _row(cell)) for cell in verdict["cells"]]
    columns = [max(len(row[place]) for _, row in rows) for place in range(3)] if rows else []
    for heading, group in groupby(rows, key=lambda pair: pair[0]["heading"]):
        yield [(str(heading), {"bold": True})]
        for cell, row in group:
            spec, place, outcome = (word.ljust(column) for word, column in zip(row, columns, strict=True))
            seconds = f"{cell['seconds'] or 0:6.1f} s"
            markup = MARKUP.get(cell["outcome"], PLAIN)
            yield [(f"  {spec}  {place}  ", PLAIN), (outcome, markup), (seconds, PLAIN)]
            yield from _reason(cell, width)


def closing(verdict: Json, path: str) -> Iterator[list[Part]]:
    """The verdict's line, its reasons, and where the whole of it lies."""
    yield [(summary_line(verdict), MARKUP.get(verdict["verdict"], BAD))]
    for reason in verdict["reasons"][:MAX_REASONS]:
        yield [(f"  {reason}", PLAIN)]
    if (more := len(verdict["reasons"]) - MAX_REASONS) > 0:
        yield [(f"  … and {more} more", PLAIN)]
    yield [(f"  report: {path}", PLAIN)]


def _cards(run: RunRecord) -> list[str]:
    if not run.gpus:
        return ["cards none (host scope, on the CPU)"]
    driver = f"driver {run.box.get('driver')}"
    lines = [f"card {gpu.index} = {gpu.uuid} {gpu.name} at {gpu.pci}, {driver}" for gpu in run.gpus]
    for uuid, others in run.box.get("tenants", {}).items():
        lines.append(
            f"{uuid} is not this run's alone, so that times and memory may be others': {'; '.join(others)}"
        )
    if order := run.box.get("cuda_order"):
        lines.append(f"CUDA numbers them otherwise: {', '.join(order)}")
    return lines


def _outside(run: RunRecord) -> list[str]:
    """What is out of scope by name, told together where it has one reason."""
    groups: dict[str, list[str]] = {}
    for spec, reason in run.scope_out:
        groups.setdefault(reason, []).append(spec)
    return [f"  out ({reason}): {', '.join(specs)}" for reason, specs in groups.items()]


def _row(cell: Json) -> tuple[str, str, str]:
    cards = [str(gpu["uuid"])[:12] for gpu in cell["gpus"]]
    place = " ".join([word for word in (cell["lowerer"], cell["platform"]) if word] + cards) or "host"
    cause = f" ({cell['cause']})" if cell["cause"] else ""
    return str(cell["spec"]), place, cell["outcome"] + cause


def _reason(cell: Json, width: int) -> Iterator[list[Part]]:
    if not cell["reason"] or cell["outcome"] == "holds":
        return
    words = textwrap.shorten(cell["reason"], MAX_REASON_CHARS, placeholder=" …")
    for line in textwrap.wrap(words, max(width - 6, 40)):
        yield [(f"      {line}", PLAIN)]
