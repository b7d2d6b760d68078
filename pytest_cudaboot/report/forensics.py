"""What is left of each broken cell, in a folder of its own: `OUT/broken/CELL/`. It decides nothing and runs nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from pytest_cudaboot.model import Json, Outcome, Record
from pytest_cudaboot.report.repro import script
from pytest_cudaboot.report.shell import Shell
from pytest_cudaboot.rules.account import Cell, settle_cells, take_account
from pytest_cudaboot.rules.catalog import Catalog
from pytest_cudaboot.rules.ledger_lines import write_line

BROKEN = "broken"
CELL, REPRO = "cell.json", "repro.sh"
TAIL = 64 * 1024  # bytes of a log; what a process wrote last is what matters
PACKAGES = ("pytest-cudaboot", "pytest", "pytest-xdist", "numpy", "iree-base-compiler", "iree-base-runtime")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def write_broken(out: Path, catalog: Catalog, records: Sequence[Record], verdict: Json, shell: Shell) -> int:
    """Write the folders.

    :returns: how many there are.
    :raises OSError: if that is not possible.
    """
    account = take_account(catalog, records)
    cells = settle_cells(catalog, account) if account is not None else ()
    told = zip(cells, verdict["cells"], strict=True)
    broken = [(cell, data) for cell, data in told if cell.settled.outcome is Outcome.BROKEN]
    for cell, data in broken:
        folder = out / BROKEN / _UNSAFE.sub("-", str(cell.key))
        folder.mkdir(parents=True, exist_ok=True)
        _json(folder / CELL, data)
        _evidence(folder, cell, records)
        _json(folder / "inputs.json", _inputs(folder, cell, verdict))
        _json(folder / "versions.json", _versions(verdict))
        assert account is not None  # noqa: S101 - it has cells
        _repro(folder / REPRO, script(cell, account.run, shell, catalog.path))
    return len(broken)


def clear(out: Path) -> None:
    """Remove what an earlier run left; a folder without a cell in it is somebody else's."""
    for cell in (out / BROKEN).glob(f"*/{CELL}"):
        shutil.rmtree(cell.parent)


def _evidence(folder: Path, cell: Cell, records: Sequence[Record]) -> None:
    """What was written down of its tests: the ledger's lines, and whatever their evidence has or names."""
    journal = [write_line(record) for record in records if getattr(record, "nodeid", None) in cell.nodeids]
    (folder / "journal.jsonl").write_text("".join(journal), encoding="utf-8")
    _text(folder / "stderr.txt", _copies(cell, ("device_log", "log")))
    _text(folder / "stacks.txt", _copies(cell, ("stacks",)))
    for name, file in (("hardware", "counters.json"), ("mapped", "libraries.json")):
        if told := {nodeid: value for nodeid, value in _found(cell, name) if value}:
            _json(folder / file, told)


def _repro(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _found(cell: Cell, name: str) -> Iterator[tuple[str, object]]:
    """Every value of that name in the evidence of the cell's tests, however deep, and of their second runs."""
    tables = [(run.nodeid, run.evidence) for run in cell.results]
    tables += [(run.nodeid, run.evidence) for run in cell.attempts]
    yield from ((nodeid, value) for nodeid, evidence in tables for value in _values(evidence, name))


def _values(table: Json, name: str) -> Iterator[object]:
    for key, value in table.items():
        if key == name:
            yield value
        elif isinstance(value, dict):
            yield from _values(value, name)


def _copies(cell: Cell, names: Sequence[str]) -> Iterator[str]:
    """The ends of the files that the evidence names; one that is gone says so."""
    paths = dict.fromkeys(str(path) for name in names for _, path in _found(cell, name) if path)
    for path in paths:
        try:
            with Path(path).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
                yield f"==> {path}\n{log.read().decode(errors='replace')}\n"
        except OSError as error:
            yield f"==> {path}: {error.strerror}\n"


def _inputs(folder: Path, cell: Cell, verdict: Json) -> Json:
    """What went in: the parameters in the tests' names, digests of the project's files, and arrays where they are kept."""
    kept = dict.fromkeys(str(path) for _, path in _found(cell, "inputs"))
    for path in kept:
        if Path(path).is_file():
            shutil.copy(path, folder)
    return {
        "tests": {nodeid: nodeid.partition("[")[2].rstrip("]") for nodeid in cell.nodeids},
        "project": verdict["project"],
        "arrays": [Path(path).name for path in kept],
        "measurements": {result.nodeid: result.measurements for result in cell.results},
    }


def _versions(verdict: Json) -> Json:
    return {
        "box": verdict["box"],
        "toolchain": verdict["toolchain"],
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _text(path: Path, parts: Iterator[str]) -> None:
    text = "".join(parts)
    if text:
        path.write_text(text, encoding="utf-8")
