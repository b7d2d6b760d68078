"""`repro.sh`: one broken cell, run again alone, and whether it breaks in the same way. Text only."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from pytest_cudaboot.model import RunRecord
from pytest_cudaboot.report.shell import Shell, exports
from pytest_cudaboot.rules.account import Cell
from pytest_cudaboot.rules.cells import culprits
from pytest_cudaboot.rules.findings import cards_of
from pytest_cudaboot.rules.spec import cards_wanted

HEAD = """#!/bin/sh
# Runs again, alone: {key}
# It was broken ({cause}, blame: {blame}): {reason}
# Exit status: 0 if it is broken again for the same cause, 1 if it is broken for another one, 3 if it is not broken,
# 2 if the run had no answer. The run's own words go to the terminal, its verdict and logs to a new folder in /tmp.
set -u
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 2
out=$(mktemp -d) || exit 2
"""


def script(cell: Cell, run: RunRecord, shell: Shell, catalog: Path) -> str:
    """The whole file."""
    settled = cell.settled
    told = {"cause": settled.cause, "blame": settled.blame, "reason": " ".join(str(settled.reason).split())}
    command = shlex.join(
        [
            shell.python,
            "-m",
            "pytest",
            *_options(cell, run),
            "--cudaboot-catalog",
            str(catalog),
            *shell.options,
        ]
    )
    tests = shlex.join(shell.test(nodeid) for nodeid in _tests(cell))
    lines = [
        *exports(shell),
        f"# xla went through {(run.toolchain.get('plugin') or {}).get('path')}",
        f"cd {shlex.quote(str(shell.folder))} || exit 2",
        f'{command} --cudaboot-out "$out" {tests}',
        'echo "verdict and logs: $out"',
        shlex.join([shell.python, "-m", "pytest_cudaboot.report.compare"])
        + ' "$here/cell.json" "$out/verdict.json"',
    ]
    return HEAD.format(key=cell.key, **told) + "\n".join(lines) + "\n"


def _options(cell: Cell, run: RunRecord) -> Iterator[str]:
    yield from ("--gpus", ",".join(_cards(cell, run)) or "none", "-p", "no:cacheprovider")
    yield from ("--cudaboot-project", str(run.project["path"]))
    yield from ("--cudaboot-tracks", ",".join(run.tracks))
    if run.explicit_lowerers:
        yield from ("--cudaboot-lowerers", ",".join(run.lowerers))
    if asked := [condition for condition in run.require if not cards_wanted(condition)]:
        yield from ("--cudaboot-require", ",".join(asked))
    if cell.settled.cause == "collateral":
        # Whose victim it was has to run in the same process, before it.
        yield from ("-n", "0")
    elif len({one.cause for one in culprits(cell.spec, cell.results)}) == 1:
        # What failed has said all there is to know, so that nobody has to be asked again.
        yield "-x"


def _cards(cell: Cell, run: RunRecord) -> list[str]:
    """The card that it ran on first; as many more as the spec's scope needs."""
    wanted = max([1, *filter(None, map(cards_wanted, cell.spec.when))])
    there = dict.fromkeys([*cards_of(cell), *(gpu.uuid for gpu in run.gpus)])
    return list(there)[:wanted]


def _tests(cell: Cell) -> list[str]:
    """Its tests, after those whose victims they were."""
    guilty = [str(result.evidence["culprit"]) for result in cell.results if "culprit" in result.evidence]
    return list(dict.fromkeys([*guilty, *cell.nodeids]))
