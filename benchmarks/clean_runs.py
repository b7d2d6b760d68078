"""Runs in which nothing is wrong, again and again: none may raise an alarm. What is red here is a false one.

python benchmarks/clean_runs.py [runs]                           on a simulated box whose cards live as healthy ones do
python benchmarks/clean_runs.py [runs] --gpus all [FILES...]     on this machine's cards, with these words for pytest

A healthy card's totals are not zero and go on to grow a little: a few receiver errors as the link changes its speed,
an idle or capped clock, a corrected memory error of the machine in the kernel's log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fixtures.boxes.replay import Box, Card, build, lay_out

RUNS = 20
CARDS = 2
TESTS = """
import os, pathlib, random, pytest
ROOT = pathlib.Path(os.environ["CUDABOOT_BOX_ROOT"])
LOG = ROOT / "dev/kmsg"

@pytest.mark.spec("a.works")
@pytest.mark.parametrize("number", range(6))
def test_works(number, gpu, evidence):
    evidence.act()
    evidence.ran_on("cuda", [gpu.uuid])
    (ROOT / "at" / random.choice(["few", "capped", "busy", "repaired"])).touch()
    with LOG.open("a") as log:
        log.write("4,1,1,-;mce: [Hardware Error]: Machine check events logged\\n")
"""
CATALOG = '[a.works]\nkind = "step"\ntitle = "T"\nheading = "H"\non = "each"\n'
TOTALS = tuple(f"{number} {number % 40}" for number in (3, 4, 94, 95, *range(142, 146), *range(173, 184)))
GAUGES = ("83 90000", "197 1000", "198 1000", "temperature 55", "power 120000", "clocks 1", "used 4", "xid 0")
HAPPENS = (
    "few 175 12",  # the link goes to another speed
    "few 173 12",
    "few 94 3",
    "capped clocks 4",
    "capped power 250000",
    "busy 197 40000000000",
    "busy temperature 30",
    "repaired 3 900",
    "repaired 142 1",
    "repaired xid 63",
)


def healthy() -> Box:
    """Cards that have been up for a while, and to which what is usual happens."""
    cards = tuple(
        Card(
            uuid=f"GPU-0000000{n}-0000-4000-8000-000000000000",
            name="NVIDIA L4",
            pci=f"00000000:0{n}:00.0",
            capability="8.9",
            memory=23034,
            minor=n,
            counter=(*TOTALS, *GAUGES),
            at=HAPPENS,
            bridge=(f"0000:00:0{n}.0",),
        )
        for n in range(1, CARDS + 1)
    )
    return Box(cards=cards)


def main(runs: int, words: Sequence[str]) -> int:
    alarms = 0
    with tempfile.TemporaryDirectory() as folder:
        libraries = build(Path(folder, "lib")) if not words else None
        for number in range(1, runs + 1):
            place = Path(folder, str(number))
            place.mkdir()
            env = dict(os.environ)
            if libraries is not None:
                env |= lay_out(healthy(), place / "box", libraries) | {
                    "CUDABOOT_LEASE_DIR": str(place / "leases")
                }
                env["PJRT_PLUGIN"] = str(
                    libraries / "libcuda.so.1"
                )  # any will do: nothing is driven through it
                (place / "box/root/dev/kmsg").write_text("6,0,0,-;booted\n")
                (place / "test_works.py").write_text(TESTS)
                (place / "catalog.toml").write_text(CATALOG)
            alarms += _run(number, place, words or ("--gpus", "0", "-n", "0", "."), env)
    print(f"{alarms} of {runs} runs raised an alarm")
    return 1 if alarms else 0


def _run(number: int, place: Path, words: Sequence[str], env: Mapping[str, str]) -> bool:
    """One run; whether anything was said against a card."""
    began = time.monotonic()
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--cudaboot-out",
        str(place / "out"),
        *words,
    ]
    done = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, check=False)
    verdict = json.loads((place / "out/verdict.json").read_text())
    against = verdict["box"].get("suspect", [])
    watched = sum("hardware" in cell["evidence"] for cell in verdict["cells"])
    print(
        f"{number}: exit {done.returncode}, {verdict['verdict']}, {watched} of {len(verdict['cells'])} cells watched, "
        f"{time.monotonic() - began:.0f} s, against a card: {[entry['words'] for entry in against] or 'nothing'}",
        flush=True,
    )
    if not watched:  # it ended before it began, and what it said is why
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n", flush=True)
    return bool(against) or verdict["verdict"] == "hardware suspect" or not watched


if __name__ == "__main__":
    told = sys.argv[1:]
    number = int(told.pop(0)) if told and told[0].isdecimal() else RUNS
    sys.exit(main(number, told))
