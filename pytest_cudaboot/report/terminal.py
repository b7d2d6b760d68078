"""What a person reads: the header before, the table and the verdict after. It prints nothing itself."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_cudaboot.model import Json, RunRecord

STYLES = {
    "holds": "green",
    "broken": "bold red",
    "expired": "yellow",
    "blocked": "magenta",
    "unsupported": "cyan",
    "not-run": "yellow",
    "waived": "yellow",
    "accept": "bold green",
}
MAX_REASONS = 12
SEPARATOR = " · "


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
        lines.append(f"scope {len(run.scope_in)} specs in, {len(run.scope_out)} out{_outside(run)}")
    return [f"cudaboot: {line}" for line in [*lines, *notes]]


def table(verdict: Json, *, width: int, color: bool) -> str:
    """The cells in document order: heading, spec, who ran it where, outcome."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    for title in ("heading", "spec", "on", "outcome", "s"):
        grid.add_column(
            title, overflow="fold", no_wrap=title == "spec", justify="right" if title == "s" else "left"
        )
    previous = None
    for cell in verdict["cells"]:
        shown = "" if cell["heading"] == previous else str(cell["heading"])
        previous = cell["heading"]
        outcome = Text(cell["outcome"] + _detail(cell), style=STYLES.get(cell["outcome"], ""))
        grid.add_row(shown, cell["spec"], _place(cell), outcome, f"{cell['seconds'] or 0:.1f}")
    return _render(grid, width=width, color=color)


def closing(verdict: Json, summary: str, path: str, *, color: bool) -> str:
    """The verdict's line, its reasons, and where the whole of it lies."""
    text = Text(summary, style=STYLES.get(verdict["verdict"], "bold red"))
    reasons = [Text(f"  {reason}") for reason in verdict["reasons"][:MAX_REASONS]]
    more = len(verdict["reasons"]) - MAX_REASONS
    if more > 0:
        reasons.append(Text(f"  … and {more} more"))
    lines: Iterable[Text] = [text, *reasons, Text(f"  report: {path}")]
    return _render(Text("\n").join(lines), width=10_000, color=color)


def _cards(run: RunRecord) -> list[str]:
    if not run.gpus:
        return ["cards none (host scope, on the CPU)"]
    driver = f"driver {run.box.get('driver')}"
    return [f"card {gpu.index} = {gpu.uuid} {gpu.name} at {gpu.pci}, {driver}" for gpu in run.gpus]


def _outside(run: RunRecord) -> str:
    return "".join(f"\n  out: {spec} ({reason})" for spec, reason in run.scope_out)


def _place(cell: Json) -> str:
    cards = [str(gpu["uuid"])[:12] for gpu in cell["gpus"]]
    return " ".join([word for word in (cell["lowerer"], cell["platform"]) if word] + cards) or "host"


def _detail(cell: Json) -> str:
    cause = f" ({cell['cause']})" if cell["cause"] else ""
    reason = f": {cell['reason']}" if cell["reason"] and cell["outcome"] != "holds" else ""
    return cause + reason[:160]


def _render(what: Table | Text, *, width: int, color: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=color, no_color=not color, highlight=False)
    console.print(what, soft_wrap=isinstance(what, Text))
    return stream.getvalue().rstrip("\n")
