"""What one test did: figures, proofs of work, the device it really ran on. It judges nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_cudaboot.model import Json

PROPERTY = "cudaboot"
KEY: pytest.StashKey[Evidence] = pytest.StashKey()


@dataclass(slots=True)
class Evidence:
    """The recorder of one test; the fixtures fill it, the report carries it to the controller.

    :param deadline: `time.monotonic()` by which the budget of the test's phase is spent.
    :param arrays: what it last gave to its device.
    """

    deadline: float
    spec: str | None = None
    nodeid: str | None = None
    acts: int = 0
    platform: str | None = None
    gpus: set[str] = field(default_factory=set)
    arrays: Sequence[Any] = ()
    measurements: Json = field(default_factory=dict)
    notes: Json = field(default_factory=dict)

    def act(self) -> None:
        """Something real was done: a session was used or a command ran."""
        self.acts += 1

    def measure(self, **figures: Any) -> None:
        """Add figures to the cell; a name says its unit (`step_ms`, `bytes`)."""
        self.acts += 1
        self.measurements.update(figures)

    def note(self, **facts: Any) -> None:
        """Add facts to the cell's evidence."""
        self.notes.update(facts)

    def ran_on(self, platform: str, uuids: list[str]) -> None:
        """Say where it ran, in the words of the process that ran it."""
        self.platform = platform
        self.gpus.update(uuids)

    def allow(self, seconds: float) -> None:
        """Begin a phase of the test with a budget of its own."""
        self.deadline = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds of budget left, at least a little so that a call can end with a message."""
        return max(0.1, self.deadline - time.monotonic())

    def to_property(self) -> tuple[str, str]:
        """As a user property: JSON text, which is all that crosses from a worker."""
        facts = {
            "spec": self.spec,
            "acts": self.acts,
            "platform": self.platform,
            "gpus": sorted(self.gpus),
            "measurements": self.measurements,
            "evidence": self.notes,
        }
        return PROPERTY, json.dumps(_plain(facts), allow_nan=False)


def attach_facts(report: pytest.TestReport, notes: Json) -> None:
    """What is known of a test whose worker can tell nothing any more."""
    report.user_properties.append((PROPERTY, json.dumps({"acts": 0, "evidence": _plain(notes)})))


def _plain(value: Any) -> Any:
    """As JSON has it: NumPy scalars and paths are welcome in figures, and what is not finite is shown as text."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def read_property(properties: list[tuple[str, object]]) -> Json:
    """The facts of `to_property`, or an empty dict."""
    # Ours comes last: what a test records by itself stands before it.
    text = next((value for name, value in reversed(properties) if name == PROPERTY), None)
    return dict(json.loads(str(text))) if text is not None else {}


def idle(properties: list[tuple[str, object]]) -> bool:
    """Whether a test that speaks for a spec has touched nothing."""
    facts = read_property(properties)
    return bool(facts.get("spec")) and not facts["acts"]
