"""Compare what two trainers printed, step by step. Pure: lines in, differences out; it refuses traces of two programs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pytest_cudaboot.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_cudaboot.model import Json

FIRST_STEPS = 100  # training is chaotic after about so many
TOLERANCE = 1e-2
# Where it ran, and by what, is no part of the program.
ELSEWHERE = frozenset({"lowerer", "shim", "device", "platform", "pid", "dataset.path"})
STEPS = "config.steps"
ABSENT = "nothing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A header and the records of the steps, from 0 on."""

    name: str
    header: Json
    steps: tuple[Json, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Apart:
    """How far two traces are apart in one figure at one step, as a share of the larger one."""

    step: int
    figure: str
    first: float
    second: float
    share: float


def read_trace(name: str, text: str) -> Trace:
    """A trainer's standard output as a trace.

    :raises UsageError: it is none, or not a whole one; the message names the file, and the line where there is one.
    """
    if not text.strip():
        _refuse(name, "empty; a trace begins with a header")
    records = [
        _record(f"{name}:{number}", line, last=not text.endswith("\n")) for number, line in _lines(text)
    ]
    if records[0].get("kind") != "header":
        _refuse(f"{name}:1", f"{records[0].get('kind')!r} is no header; a trace begins with one")
    steps = [record for record in records[1:] if record.get("kind") == "step"]
    for place, step in enumerate(steps):
        if step.get("step") != place:
            _refuse(name, f"step {step.get('step')!r} stands where step {place} belongs")
        if not _is_number(step.get("loss")):
            _refuse(name, f"step {place} has the loss {step.get('loss')!r}, which is no number")
    if not steps:
        _refuse(name, "no step; there is nothing to compare")
    return Trace(name=name, header=records[0], steps=tuple(steps))


def differing_fields(a: Trace, b: Trace) -> list[str]:
    """Where the headers do not describe the same program, one sentence a field; empty if they do."""
    first, second = dict(_flat(a.header)), dict(_flat(b.header))
    ignored = set(ELSEWHERE)
    if "constant" == first.get("config.schedule") == second.get("config.schedule"):
        ignored.add(STEPS)  # a longer run begins as a shorter one does
    return [
        f"{field}: {first.get(field, ABSENT)!r} against {second.get(field, ABSENT)!r}"
        for field in sorted(first.keys() | second.keys())
        if field not in ignored and first.get(field, ABSENT) != second.get(field, ABSENT)
    ]


def compare_traces(a: Trace, b: Trace, *, steps: int = FIRST_STEPS) -> list[Apart]:
    """How far the first steps are apart: the loss, and each other figure that both have.

    :raises UsageError: the headers describe two programs, or a trace ends before it should.
    """
    if differing := differing_fields(a, b):
        raise UsageError(f"{a.name} and {b.name} are of two programs; {'; '.join(differing)}")
    wanted = min(steps, *(_promised(trace) for trace in (a, b)))
    for trace in (a, b):
        if len(trace.steps) < wanted:
            _refuse(
                trace.name,
                f"truncated: it ends after {len(trace.steps)} steps, its header says {_promised(trace)}",
            )
    return [apart for pair in zip(a.steps[:wanted], b.steps[:wanted], strict=True) for apart in _apart(*pair)]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _record(where: str, line: str, *, last: bool) -> Json:
    try:
        record = json.loads(line)
    except ValueError:
        what = "cut short" if last and line.lstrip().startswith("{") else "no JSON"
        _refuse(where, f"{what}: {line[:60]!r}; a trace is one JSON object a line")
    if not isinstance(record, dict):
        _refuse(where, f"{line[:60]!r} is no JSON object; a trace is one a line")
    return record


def _flat(value: Json, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, inner


def _promised(trace: Trace) -> int:
    """How many steps the header says; where it does not, those that are there."""
    told = trace.header.get("config", {}).get("steps")
    return told if isinstance(told, int) else len(trace.steps)


def _apart(a: Json, b: Json) -> Iterator[Apart]:
    for figure in a:
        if figure != "step" and _is_number(a[figure]) and _is_number(b.get(figure)):
            first, second = float(a[figure]), float(b[figure])
            yield Apart(
                step=a["step"], figure=figure, first=first, second=second, share=_share(first, second)
            )


def _share(first: float, second: float) -> float:
    """Zero for equals, NaN and infinities too; what is finite on one side only is infinitely far."""
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    if not (math.isfinite(first) and math.isfinite(second)):
        return math.inf
    return abs(first - second) / max(abs(first), abs(second))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(where: str, what: str) -> NoReturn:
    raise UsageError(f"{where}: {what}")


def summary(differences: Sequence[Apart], tolerance: float) -> Iterator[str]:
    """For each figure how many steps were compared and where they are furthest apart, and the first step beyond."""
    for figure in dict.fromkeys(apart.figure for apart in differences):
        own = [apart for apart in differences if apart.figure == figure]
        worst = max(own, key=lambda apart: apart.share)
        told = f"{figure}: {len(own)} steps, at most {worst.share:.3g} apart, at step {worst.step}"
        beyond = next((apart for apart in own if not apart.share <= tolerance), None)
        if beyond is not None:
            values = f"{beyond.first:.9g} against {beyond.second:.9g}"
            told += f"; beyond {tolerance:g} from step {beyond.step} on: {values}"
        yield told
