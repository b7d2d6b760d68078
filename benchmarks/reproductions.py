"""Whether `repro.sh` reproduces what it is of, as it stands: one run in which everything breaks, and each cell's script.

`python -m benchmarks.reproductions` prints a line for each kind of failure, and ends with 1 if one is not reproduced.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.boxes.box import stand_ins
from tests.boxes.breaking import CAUSES, break_everything


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="reproductions-") as name:
        folder = Path(name)
        (folder / "run").mkdir()
        broken = break_everything(folder / "run", stand_ins(folder / "libraries"))
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        failed = 0
        for spec, cause in CAUSES.items():
            started = time.monotonic()
            seen = broken.cell(spec)["cause"]
            done = broken.reproduced(spec, elsewhere)
            well = (seen, done.returncode) == (cause, 0)
            failed += not well
            seconds = time.monotonic() - started
            sys.stdout.write(
                f"{spec:12} {seen:12} exit {done.returncode}  {seconds:5.1f} s  {'' if well else 'NOT '}reproduced\n"
            )
            if not well:
                sys.stdout.write(f"{done.stdout[-3000:]}\n{done.stderr[-2000:]}\n")
    sys.stdout.write(f"{len(CAUSES) - failed} of {len(CAUSES)} reproduced\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
