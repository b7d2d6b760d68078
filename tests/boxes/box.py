"""A gate on a simulated box, and what each process of the run could touch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
from filelock import FileLock

from fixtures.boxes import replay
from fixtures.boxes.replay import Box
from tests.run.gate import HELD, ROOT, SCHEMA, WORKS, Gate, Json

PLUGIN = "tiny_plugin.so"
BOXES = Path(replay.__file__).parent
ASK = """
import json, os, sys
from pytest_cudaboot.errors import SelectionError
from pytest_cudaboot.run.box import choose

def answer(wanted, mask):
    try:
        box = choose(wanted, os.environ | ({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}))
    except SelectionError as error:
        return f"usage: {error}"
    return f"environment: {box.problem}" if box.problem else [gpu.uuid for gpu in box.gpus]

print(json.dumps([answer(*question) for question in json.loads(sys.argv[1])]))
"""
OURS = ("PYTEST_XDIST_", "PYTEST_ADDOPTS", "CUDA_", "CUDABOOT_")
REPLAYED = "the box was replayed from a recording, and a replay is never accepted"
Done = subprocess.CompletedProcess[str]
Question = tuple[str, str | None]
PUBLISHED = jsonschema.Draft202012Validator(SCHEMA)  # made once: there are many looks at a run


class BoxGate(Gate):
    """A folder with a suite, on a box. Its runs are processes of their own: libraries are found by a variable."""

    def __init__(
        self, path: Path, libraries: Path
    ) -> None:  # no pytester: a run may serve more than one test
        self.path = path
        self.out = path / ".cudaboot"
        self.root = path / "the-box" / "root"
        self.libraries = libraries
        self.box = Box()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        # Two boxes have the same cards, and must not wait for each other.
        self.env = {**clean, "PYTHONPATH": str(ROOT), "CUDABOOT_LEASE_DIR": str(path / "leases")}
        self.env["CUDABOOT_HISTORY"] = str(path / "history")

    def on(self, box: Box | str, **variables: str) -> BoxGate:
        """Put a box under it: one of the files, or one made by the test."""
        self.box = replay.read(BOXES / f"{box}.box") if isinstance(box, str) else box
        self.env |= replay.lay_out(self.box, self.root.parent, self.libraries) | variables
        # A plugin that needs no card: what is under test is which card it would have got.
        self.env["PJRT_PLUGIN"] = str(self.libraries / PLUGIN)
        return self

    def suite(self, tests: str = HELD, catalog: str | None = WORKS) -> BoxGate:
        """Write the files of a suite."""
        super().suite(tests, catalog)
        return self

    def ran(self, *words: str, gpus: str) -> Done:
        """Run as a user does."""
        argv = self.argv(*words, gpus=gpus)
        return subprocess.run(argv, cwd=self.path, env=self.env, capture_output=True, text=True, check=False)

    def argv(self, *words: str, gpus: str = "all") -> list[str]:
        return [sys.executable, "-m", "pytest", "--gpus", gpus, "-p", "no:cacheprovider", *words, "."]

    def refused(self, *words: str, gpus: str) -> str:
        """What a run that ends as a usage error says; nothing runs, and no card is touched."""
        done = self.ran(*words, gpus=gpus)
        assert (done.returncode, self.verdict["exit"], self.touched) == (4, 4, [])
        return " ".join(done.stderr.split())

    def contradicted(self, *words: str, gpus: str) -> str:
        """Why a run ends as `environment`, on a box that is known to be simulated."""
        done = self.ran(*words, gpus=gpus)
        assert (done.returncode, self.verdict["verdict"], self.verdict["simulated"]) == (
            13,
            "environment",
            True,
        )
        return str(self.verdict["reasons"][0])

    @property
    def verdict(self) -> Json:
        """The verdict on disk, which has the published form."""
        found: Json = json.loads((self.out / "verdict.json").read_text())
        PUBLISHED.validate(found)
        return found

    def uuid(self, place: int) -> str:
        return self.box.cards[place].uuid

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in self.box.cards]

    def ask(self, *questions: Question) -> list[Any]:
        """What `--gpus` means, under a mask or without one, by one process for all questions."""
        answers: list[Any] = self.told(ASK, json.dumps(questions))
        return answers

    def told(self, program: str, *words: str) -> Any:
        """What a program prints on the box, which is JSON."""
        argv = [sys.executable, "-c", program, *words]
        done = subprocess.run(argv, cwd=self.path, env=self.env, capture_output=True, text=True, check=False)
        assert not done.stderr
        return json.loads(done.stdout)

    @property
    def touched(self) -> list[tuple[str, ...]]:
        """For each process that initialised CUDA, the cards that it saw."""
        log = self.root / "cuda.log"
        return [tuple(line.split()[1:]) for line in log.read_text().splitlines()] if log.exists() else []

    def cards_of(self, spec: str) -> dict[str, str]:
        """Outcome of a spec's cells by card."""
        found = [cell for cell in self.verdict["cells"] if cell["spec"] == spec]
        return {cell["gpus"][0]["uuid"]: cell["outcome"] for cell in found}


def stand_ins(folder: Path) -> Path:
    """The libraries of a simulated box, and the smallest plugin that a shim can drive, as if it were on a card.

    :param folder: where they are compiled into by whoever comes first, and found by all others.
    """
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            partial = replay.build(folder.with_suffix(".partial"))
            source = ROOT / "tests/run/tiny_cuda.c"
            line: list[str | Path] = [
                "/usr/bin/env",
                "gcc",
                "-fPIC",
                "-shared",
                source,
                "-o",
                partial / PLUGIN,
            ]
            subprocess.run(line, check=True)
            partial.rename(folder)
    return folder


def steps(**places: str) -> str:
    """A catalogue of steps `a.NAME`; a place is `host`, `any` or `each`, `each xla` with a lowerer."""
    tables = []
    for name, place in places.items():
        on, _, lowerer = place.partition(" ")
        lowerers = f"lowerers = {json.dumps([lowerer])}\n" if lowerer else ""
        tables.append(f'[a.{name}]\nkind = "step"\ntitle = "T"\nheading = "H"\non = "{on}"\n{lowerers}')
    return "\n".join(tables)
