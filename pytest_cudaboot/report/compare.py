"""Whether a run broke a cell as another run did: `python -m pytest_cudaboot.report.compare CELL.json VERDICT.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_cudaboot.model import Json

SAME, OTHERWISE, NO_ANSWER, NOT_BROKEN = 0, 1, 2, 3


def main(argv: Sequence[str]) -> int:
    """Say what was expected and what was seen."""
    expected = json.loads(Path(argv[0]).read_text())
    try:
        verdict: Json = json.loads(Path(argv[1]).read_text())
    except (OSError, ValueError) as error:
        sys.stdout.write(f"no answer: {error}\n")
        return NO_ANSWER
    seen = next((cell for cell in verdict["cells"] if _is(cell, expected)), None)
    sys.stdout.write(f"expected: {_told(expected)}\nseen:     {_told(seen)}\n")
    if seen is None:
        sys.stdout.write(f"the run says: {'; '.join(verdict['reasons'])}\n")
        return NO_ANSWER
    return status(expected, seen)


def status(expected: Json, seen: Json) -> int:
    """The answer as an exit status."""
    if seen["outcome"] in ("not-run", "blocked"):
        return NO_ANSWER
    if seen["outcome"] != "broken":
        return NOT_BROKEN
    return SAME if seen["cause"] == expected["cause"] else OTHERWISE


def _is(cell: Json, expected: Json) -> bool:
    return all(cell[key] == expected[key] for key in ("spec", "lowerer", "bound"))


def _told(cell: Json | None) -> str:
    return f"{cell['outcome']} ({cell['cause']}): {cell['reason']}" if cell else "nothing of this cell"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
