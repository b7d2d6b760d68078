"""Small suites that are run by the plugin, in this process or in one of its own, and what they leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import pytest_cudaboot
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.ledger_lines import read_ledger
from pytest_cudaboot.rules.verdict import judge

Json = dict[str, Any]
ROOT = Path(pytest_cudaboot.__file__).parents[1]
PATH = f"{ROOT / 'tests/run/machine'}:{ROOT}"  # the machine's processors are then `GATE_PROCESSORS`
SCHEMA = json.loads((ROOT / "pytest_cudaboot/schema/verdict.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HELD = """
import pytest
@pytest.mark.spec("a.works")
def test_works(measure, evidence): measure(figure=1); evidence.ran_on("cpu", [])
"""
RUN_LINEAR = """
def run_linear(session, project):
    import numpy
    opened = session(project.forward("linear"))
    arrays = [numpy.zeros(tensor["shape"], "float32") for tensor in opened.signature["inputs"]]
    assert len(opened.invoke(arrays)) == len(opened.signature["outputs"])
"""
WORKS = """
[a.works]
kind = "step"
title = "It executes"
heading = "First"
on = "any"
"""


class Gate:
    """A folder with a catalogue and tests, and the ways to run the gate in it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.out = self.path / ".cudaboot"

    def suite(self, tests: str = HELD, catalog: str | None = WORKS) -> Gate:
        """Write the files of a suite; without a catalogue they are somebody's own tests."""
        (self.path / "pytest.ini").write_text("[pytest]\n")
        (self.path / "test_suite.py").write_text(tests)
        if catalog is not None:
            (self.path / "catalog.toml").write_text(catalog)
        return self

    def old_accept(self) -> None:
        """As if an earlier run had ended well."""
        self.out.mkdir(exist_ok=True)
        (self.out / "verdict.json").write_text('{"verdict": "accept", "exit": 0}')

    def here(self, *words: str, gpus: str = "none") -> pytest.RunResult:
        """Run without workers, in this very process, which costs no start."""
        return self.pytester.runpytest_inprocess("--gpus", gpus, "-n", "0", *words, ".")

    def away(self, *words: str, gpus: str = "none") -> pytest.RunResult:
        """Run as a user does: a process of its own, with workers."""
        return self.pytester.runpytest_subprocess("--gpus", gpus, *words, ".")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Begin a run with workers, in a process group of its own, and go on."""
        with (self.path / "output.txt").open("wb") as output:
            return subprocess.Popen(
                self.argv(*words),
                cwd=self.path,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pytest", "--gpus", "none", "-p", "no:cacheprovider", *words, "."]

    @property
    def output(self) -> str:
        return (self.path / "output.txt").read_text()

    @property
    def verdict(self) -> Json:
        """The verdict on disk; it has the published form whatever happened."""
        found: Json = json.loads((self.out / "verdict.json").read_text())
        VALIDATOR.validate(found)
        return found

    @property
    def replayed(self) -> Json:
        """The verdict that the ledger alone gives."""
        lines = (self.out / "ledger.jsonl").read_text().splitlines()
        return judge(load_catalog(self.path / "catalog.toml"), read_ledger(lines))

    @property
    def cells(self) -> dict[str, Json]:
        return {cell["spec"]: cell for cell in self.verdict["cells"]}

    @property
    def outcomes(self) -> dict[str, str]:
        return {spec: cell["outcome"] for spec, cell in self.cells.items()}

    @property
    def ledger(self) -> list[Json]:
        return [json.loads(line) for line in (self.out / "ledger.jsonl").read_text().splitlines()]

    def records(self, kind: str) -> list[Json]:
        return [record for record in self.ledger if record["type"] == kind]


def catalog_of(*idents: str, **needs: Sequence[str]) -> str:
    """A catalogue of host steps beside the one that executes; `needs` has `_` for the dot of an id."""
    tables = [WORKS]
    for ident in idents:
        wanted = list(needs.get(ident.replace(".", "_"), ()))
        tables.append(
            f'[{ident}]\nkind = "step"\ntitle = "T"\nheading = "Second"\nneeds = {json.dumps(wanted)}\n'
        )
    return "\n".join(tables)
