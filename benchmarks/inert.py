"""What the installed plugin costs a suite that never asks for it: interleaved runs with it and without.

`python benchmarks/inert.py [PAIRS]` prints both medians of processor time, the difference in percent, and what was imported.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = 1000
PAIRS = 21
FOREIGN = "import pytest\n\n@pytest.mark.parametrize('n', range({count}))\ndef test_it(n): assert n >= 0\n"
WITNESS = """
import json, os, sys
def pytest_unconfigure():
    if "WITNESS" in os.environ:
        open(os.environ["WITNESS"], "w").write(json.dumps(sorted(sys.modules)))
"""
HEAVY = ("pynvml", "cffi", "numpy")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
WITHOUT = ("-p", "no:cudaboot")


def seconds(folder: Path, *words: str) -> float:
    """Processor time of one run; other programs on the machine disturb it less than its wall time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*PYTEST, *words], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imported(folder: Path) -> list[str]:
    """Which of the heavy modules a run with the plugin has in the end."""
    witness = folder / "modules.json"
    subprocess.run(
        PYTEST, cwd=folder, stdout=subprocess.DEVNULL, check=True, env={**os.environ, "WITNESS": str(witness)}
    )
    return [name for name in HEAVY if name in json.loads(witness.read_text())]


def compare(folder: Path, pairs: int) -> tuple[list[float], list[float]]:
    """Times with and without; who goes first alternates, so that a drift of the machine hits both."""
    times: dict[tuple[str, ...], list[float]] = {(): [], WITHOUT: []}
    for pair in range(pairs):
        order = [(), WITHOUT] if pair % 2 else [WITHOUT, ()]
        for words in order:
            times[words].append(seconds(folder, *words))
    return times[()], times[WITHOUT]


def main(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(WITNESS)
        (folder / "test_foreign.py").write_text(FOREIGN.format(count=TESTS))
        seconds(folder)  # the first run compiles
        present, absent = compare(folder, pairs)
        heavy = imported(folder)
    with_it, without_it = statistics.median(present), statistics.median(absent)
    paired = statistics.median(a - b for a, b in zip(present, absent, strict=True))
    print(f"{TESTS} tests, {pairs} pairs")
    print(f"with the plugin     {with_it:.4f} s (fastest {min(present):.4f} s)")
    print(f"without it          {without_it:.4f} s (fastest {min(absent):.4f} s)")
    print(
        f"difference of medians {100 * (with_it / without_it - 1):+.2f} %, median of pairs {100 * paired / without_it:+.2f} %"
    )
    print(f"imported of {', '.join(HEAVY)}: {', '.join(heavy) or 'none'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
