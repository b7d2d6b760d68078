"""The verdict over a ledger that has ended: judged, written, shown, with what it takes to see a broken cell again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_cudaboot.model import Record
from pytest_cudaboot.report import terminal
from pytest_cudaboot.report.files import Claim
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.rules.verdict import judge
from pytest_cudaboot.run.aftermath import keep_broken


def rule(
    config: pytest.Config,
    claim: Claim,
    catalog: Catalog,
    records: Sequence[Record],
    variables: Mapping[str, str | None],
    say: Callable[[str], None],
) -> int:
    """Judge and write.

    :param claim: the output folder.
    :param variables: what a script that runs a test of this run again has to set.
    :returns: the exit status.
    """
    verdict = judge(catalog, records)
    path = claim.settle(verdict)
    kept = keep_broken(config, path.parent, catalog, records, verdict, variables)
    if kept:
        say(f"cudaboot: {kept}")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        # The reporter's own writer is the only one that capture leaves alone.
        terminal.write(reporter._tw, verdict, _shown(path), table=reporter.verbosity >= 0)  # noqa: SLF001
    return int(verdict["exit"])


def _shown(path: Path) -> str:
    """A path as short as it can be and still be opened from here."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
