"""Whether a run blames the right one: kernels and a net that fail wherever they run, each run again for an opinion.

python -m benchmarks.second_opinions --gpus 0       one card: nobody but the driver can say whose fault it is
python -m benchmarks.second_opinions --gpus 0,1     two cards of a model, which agree
python -m benchmarks.second_opinions --gpus none    no card: what is planted in a net, on the CPU

`--only kernels` or `--only planted` runs one of the two files, `--out DIR` keeps what the run leaves; other words go to
pytest. It prints a line for each thing that must hold, and ends with 1 if one does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "tests/cards/opinions"
FILES = {"kernels": "second_opinions.py", "planted": "planted.py"}
SPECS = {"kernels": ("fine", "illegal", "bound", "numeric", "after"), "planted": ("planted", "sound")}
CAUSES = {"illegal": "run", "bound": "run", "numeric": "numeric", "together": "numeric", "planted": "numeric"}
BY_XID = ("illegal", "bound")  # the driver says of these what no card can say of itself
ADDRESS = 31  # the XID of an illegal address
FIGURES = {"energy_j": "energy_mj", "power_w": "power_w", "temperature_c": "temperature_c"}
RIGHT, WRONG = ("x[o, i, 0, 1]", "x[o, i, 1, 0]")
FAULTY = "stablehlo.convolution"
Json = dict[str, Any]
Said = tuple[str, object, object]  # what is looked at, what was seen, what it must be


@dataclass(frozen=True, slots=True)
class Run:
    """What a run has left."""

    out: Path
    verdict: Json

    @property
    def cells(self) -> dict[str, list[Json]]:
        """By the name of the spec, those that a collected test speaks for."""
        found: dict[str, list[Json]] = {}
        for cell in self.verdict["cells"]:
            if cell["nodeids"]:
                found.setdefault(cell["spec"].partition(".")[2], []).append(cell)
        return found

    @property
    def cards(self) -> int:
        return len({gpu["uuid"] for cell in self.verdict["cells"] for gpu in cell["gpus"]})

    def folder(self, cell: Json) -> Path:
        """What is left of a broken cell."""
        mine = (
            path.parent
            for path in self.out.glob("broken/*/cell.json")
            if json.loads(path.read_text()) == cell
        )
        return next(mine)


def main(gpus: str, only: str | None, out: Path, words: Sequence[str]) -> int:
    run = run_suite(gpus, only, out, words)
    for uuid, missing in run.verdict["box"].get("unobservable", {}).items():
        print(f"{uuid} does not answer: {', '.join(missing)}")
    looks = [
        specs_of(run, gpus, only),
        verdict_of(run),
        cells_of(run),
        figures_of(run),
        place_of(run),
        again(run),
    ]
    failed = sum(not told(*said) for look in looks for said in look)
    print(f"{failed} things do not hold" if failed else "all of it holds")
    return 1 if failed else 0


def run_suite(gpus: str, only: str | None, out: Path, words: Sequence[str]) -> Run:
    """Run what fails on purpose.

    :param words: more of them for pytest.
    """
    argv = [sys.executable, "-m", "pytest", "--gpus", gpus, "--cudaboot-out", str(out)]
    argv += ["-p", "no:cacheprovider", *words]
    argv += [] if only is None else ["-k", FILES[only].removesuffix(".py")]
    argv += [str(SUITE / name) for name in FILES.values()]
    began = time.monotonic()
    subprocess.run(argv, cwd=ROOT, check=False)
    run = Run(out, json.loads((out / "verdict.json").read_text()))
    print(f"\nthe run took {time.monotonic() - began:.0f} s, on {run.cards} cards")
    return run


def told(what: str, seen: object, wanted: object) -> bool:
    """Print whether something is as it must be."""
    well = seen == wanted
    print(f"well  {what}: {seen}" if well else f"NOT   {what}: {seen}, not {wanted}")
    return well


def specs_of(run: Run, gpus: str, only: str | None) -> Iterator[Said]:
    """What was not run is not looked at, and may not be missed."""
    parts = [part for part in FILES if only in (None, part) and (gpus != "none" or part == "planted")]
    wanted = {spec for part in parts for spec in SPECS[part]}
    if run.cards > 1 and "kernels" in parts:
        wanted.add("together")
    yield "specs that ran", sorted(run.cells), sorted(wanted)


def verdict_of(run: Run) -> Iterator[Said]:
    """A toolchain that fails is rejected, and no card is suspect."""
    yield "verdict", (run.verdict["verdict"], run.verdict["exit"]), ("reject", 1)
    yield "cards that are suspect", run.verdict["box"].get("suspect", []), []
    broken = {name for name, cells in run.cells.items() for cell in cells if cell["outcome"] == "broken"}
    yield "broken", sorted(broken), sorted(set(CAUSES) & set(run.cells))
    yield (
        "all others hold",
        {c["outcome"] for n in set(run.cells) - broken for c in run.cells[n]} - {"holds"},
        set(),
    )


def cells_of(run: Run) -> Iterator[Said]:
    """Cause, blame and the runs of each broken cell."""
    for name, cause in CAUSES.items():
        for cell in run.cells.get(name, ()):
            seen = [one["place"] for one in cell["evidence"].get("attempts", ())]
            cards = [one["cards"] for one in cell["evidence"].get("attempts", ())]
            yield (
                f"{name}, cause and blame",
                (cell["cause"], cell["blame"]),
                (cause, _blame(run, name, cell)),
            )
            yield f"{name}, run", seen, _places(run, name, cell)
            if "sibling" in seen:
                yield (
                    f"{name}, on another card",
                    cards[0] == cards[1] and not set(cards[2]) & set(cards[0]),
                    True,
                )


def _blame(run: Run, name: str, cell: Json) -> str:
    """Whom the truth table has for it."""
    others = run.cards // (2 if name == "together" else 1)
    by_driver = name in BY_XID and "xid" not in _unobservable(run, cell)
    return "toolchain" if cell["platform"] == "cpu" or others > 1 or by_driver else "undecidable"


def _places(run: Run, name: str, cell: Json) -> list[str]:
    if cell["platform"] == "cpu":
        return []
    others = run.cards // (2 if name == "together" else 1)
    return ["first", "same", *(["sibling"] if others > 1 and name != "bound" else [])]


def _unobservable(run: Run, cell: Json) -> set[str]:
    told = run.verdict["box"].get("unobservable", {})
    return {name for gpu in cell["gpus"] for name in told.get(gpu["uuid"], ())}


def figures_of(run: Run) -> Iterator[Said]:
    """What was seen of each card under each cell."""
    for name, cells in run.cells.items():
        for cell in (one for one in cells if one["platform"] == "cuda"):
            missing, seen = _unobservable(run, cell), cell["evidence"].get("hardware", {})
            for gpu in cell["gpus"]:
                facts = seen.get(gpu["uuid"], {})
                wanted = {figure for figure, answer in FIGURES.items() if answer not in missing}
                yield (
                    f"{name} on {gpu['uuid'][:12]} {facts}, figures that lack",
                    sorted(wanted - set(facts)),
                    [],
                )
            if name in BY_XID and "xid" not in missing:
                heard = {xid for facts in seen.values() for xid in facts.get("xids", ())}
                yield f"{name}, XIDs", sorted(heard), [ADDRESS]
            for one in cell["evidence"].get("attempts", ())[1:]:
                blind = [
                    uuid
                    for uuid in one["cards"]
                    if "temperature_c" not in one.get("hardware", {}).get(uuid, {})
                ]
                yield f"{name}, run again ({one['place']}), cards that nobody watched", blind, []


def place_of(run: Run) -> Iterator[Said]:
    """Where the planted fault was found, and its reproducer: off with the fault, and not without it."""
    for cell in run.cells.get("planted", ()):
        found = cell["evidence"]["first_bad"]
        yield (
            "first bad place",
            (found.get("op"), found.get("value"), found.get("alone")),
            (FAULTY, "%15", True),
        )
        folder = run.out / found["folder"]
        module = folder / "module.mlir"
        env = {"PJRT_PLUGIN": run.verdict["toolchain"]["plugin"]["path"], **_pinned(cell)}
        yield "reproducer, as the net has it", _ended(["check.py"], folder, env), 0
        module.write_text(module.read_text().replace(RIGHT, WRONG))
        yield "reproducer, with the fault", _ended(["check.py"], folder, env), 1
        module.write_text(module.read_text().replace(WRONG, RIGHT))


def again(run: Run) -> Iterator[Said]:
    """Each broken cell's script, as it stands."""
    for name, cells in run.cells.items():
        for cell in (one for one in cells if one["outcome"] == "broken"):
            script = run.folder(cell) / "repro.sh"
            with tempfile.TemporaryDirectory() as elsewhere:
                done = subprocess.run([script], cwd=elsewhere, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stdout[-3000:], done.stderr[-2000:], sep="\n")
            yield f"{name}, repro.sh", done.returncode, 0


def _pinned(cell: Json) -> dict[str, str]:
    uuids = [gpu["uuid"] for gpu in cell["gpus"]]
    return {"CUDA_VISIBLE_DEVICES": uuids[0]} if uuids else {}


def _ended(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> int:
    """How a program of Python's ends, with this package at hand."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT)]))
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, "PYTHONPATH": path, **env}, check=False
    )
    return done.returncode


def _parsed() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", required=True)
    parser.add_argument("--only", choices=list(FILES))
    parser.add_argument("--out", type=Path)
    return parser.parse_known_args()


if __name__ == "__main__":
    asked, rest = _parsed()
    with tempfile.TemporaryDirectory(prefix="opinions-") as kept:
        sys.exit(main(asked.gpus, asked.only, asked.out.resolve() if asked.out else Path(kept, "out"), rest))
