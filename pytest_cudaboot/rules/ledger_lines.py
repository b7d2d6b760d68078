"""The ledger's lines: a record as one line of JSON, and back. It opens no file."""

from __future__ import annotations

import dataclasses
import json
import types
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from pytest_cudaboot.model import (
    AttemptRecord,
    BlockedRecord,
    EndRecord,
    HardwareRecord,
    ItemRecord,
    PlanRecord,
    ProblemRecord,
    Record,
    ResultRecord,
    Ruling,
    RunRecord,
    StartRecord,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPE = "type"
TYPES: dict[str, type[Record]] = {
    "run": RunRecord,
    "plan": PlanRecord,
    "item": ItemRecord,
    "start": StartRecord,
    "result": ResultRecord,
    "attempt": AttemptRecord,
    "blocked": BlockedRecord,
    "problem": ProblemRecord,
    "hardware": HardwareRecord,
    "end": EndRecord,
}
_NAMES = {kind: name for name, kind in TYPES.items()}


def write_line(record: Record) -> str:
    """One record as a line, newline included."""
    data = {TYPE: _NAMES[type(record)], **to_json(record)}
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def read_ledger(lines: Iterable[str]) -> tuple[Record, ...]:
    """The records of a ledger. A line that can not be read becomes a problem, never an exception.

    A run that is cut off leaves half a line at the end; everything before it counts.
    """
    texts = [line for line in lines if line.strip()]
    return tuple(_read(text, number, last=number == len(texts)) for number, text in enumerate(texts, 1))


def _read(text: str, number: int, *, last: bool) -> Record:
    try:
        data = json.loads(text)
        kind = TYPES[data.pop(TYPE)]
        return _build(kind, data)  # type: ignore[no-any-return]
    except json.JSONDecodeError as error:
        if last:
            return _problem("the ledger ends in the middle of a line")
        return _problem(f"line {number} of the ledger is not JSON: {error}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return _problem(f"line {number} of the ledger is no record that is known here: {error!r}")


def _problem(reason: str) -> ProblemRecord:
    return ProblemRecord(ruling=Ruling.INCOMPLETE, reason=reason)


def _build(kind: Any, data: dict[str, Any]) -> Any:
    """A dataclass from what `to_json` made of it.

    :raises TypeError: for fields that are missing, unknown or of another type.
    """
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints.get(name, Any), value, name) for name, value in data.items()})


def _value(hint: Any, value: Any, name: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        bare = next(option for option in inner if option is not type(None))
        return None if value is None and type(None) in inner else _value(bare, value, name)
    if origin is tuple:
        return _tuple(inner, _typed(list, value, name), name)
    if dataclasses.is_dataclass(hint):
        return _build(hint, _typed(dict, value, name))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    return _typed((int, float) if hint is float else origin or hint, value, name)


def _tuple(inner: tuple[Any, ...], value: list[Any], name: str) -> tuple[Any, ...]:
    hints = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
    return tuple(_value(hint, entry, name) for hint, entry in zip(hints, value, strict=True))


def _typed(kind: Any, value: Any, name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}")
    return value
