"""`cudaboot traces A B`: two trainers' outputs side by side. What is compared, and how, is `rules/traces.py`'s business."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.rules.traces import Trace, compare_traces, read_trace, summary


def traces(first: Path, second: Path, *, steps: int, tolerance: float, out: TextIO) -> int:
    """0 if the first steps agree within a relative difference, 1 if they do not.

    :raises UsageError: a file is no trace, or not a whole one, or they are of two programs.
    """
    a, b = _read(first), _read(second)
    differences = compare_traces(a, b, steps=steps)
    for trace in (a, b):
        lowerer, device = (trace.header.get(field, "unknown") for field in ("lowerer", "device"))
        out.write(f"{trace.name}: {trace.header.get('net', 'unknown')} by {lowerer} on {device}\n")
    out.writelines(f"{line}\n" for line in summary(differences, tolerance))
    agree = all(apart.share <= tolerance for apart in differences)
    out.write("agree\n" if agree else "differ\n")
    return 0 if agree else 1


def _read(path: Path) -> Trace:
    try:
        return read_trace(str(path), path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: can not be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: no text, byte {error.start} is not UTF-8; a trace is JSON lines"
        ) from error
