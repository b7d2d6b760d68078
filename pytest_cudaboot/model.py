"""The frozen facts that travel between modules, and the lines of the ledger. No behaviour beyond naming."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One card. It is named by `uuid` everywhere; `index` is NVML's, for display only.

    :param capability: compute capability, (major, minor).
    :param memory: NVML's total, bytes.
    :param pci: PCI bus id as NVML prints it, `00000000:01:00.0`.
    """

    index: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory: int
    pci: str


@dataclass(frozen=True, slots=True, order=True)
class CellKey:
    """What is planned and judged: a spec, by a lowerer (or none), on a bound card (or any)."""

    spec: str
    lowerer: str | None = None
    gpu: str | None = None

    def __str__(self) -> str:
        return "·".join(part for part in (self.spec, self.lowerer, self.gpu) if part)


class Status(StrEnum):
    """How one test ended, before the catalogue says what that means for its cell."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"  # the worker died under it
    SKIPPED = "skipped"
    NO_EVIDENCE = "no-evidence"  # it passed, and touched nothing
    UNSUPPORTED = "unsupported"  # the component says that it does not have it
    SILENT = "silent"  # a canary that did not fail


class Outcome(StrEnum):
    """What became of a cell."""

    HOLDS = "holds"
    BROKEN = "broken"
    EXPIRED = "expired"
    BLOCKED = "blocked"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not-run"
    WAIVED = "waived"


class Ruling(StrEnum):
    """The verdict over a run or a track, worst first, with its exit status in `EXIT`."""

    ENVIRONMENT = "environment"
    REJECT = "reject"
    HARDWARE = "hardware suspect"
    INCOMPLETE = "incomplete"
    ACCEPT = "accept"


EXIT = {
    Ruling.ENVIRONMENT: 13,
    Ruling.REJECT: 1,
    Ruling.HARDWARE: 11,
    Ruling.INCOMPLETE: 12,
    Ruling.ACCEPT: 0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """First line of a ledger: what was asked for, on what.

    :param platform: where cells that execute run: `cuda` or `cpu`.
    :param lowerers: the lowerers in scope; `explicit_lowerers` tells whether the user named them.
    :param scope_out: pairs (spec, reason).
    :param scope_partly: (spec, lowerer, reason): in scope, but not for this lowerer, though it was chosen.
    :param unmet: (condition, reason): required conditions that are not met.
    """

    run: str
    started: str
    argv: tuple[str, ...]
    platform: str
    gpus: tuple[Gpu, ...]
    lowerers: tuple[str, ...]
    explicit_lowerers: bool
    tracks: tuple[str, ...]
    require: tuple[str, ...]
    scope_in: tuple[str, ...]
    scope_out: tuple[tuple[str, str], ...]
    simulated: bool
    project: Json
    catalog: Json
    box: Json
    toolchain: Json
    waivers: tuple[Json, ...] = ()
    scope_partly: tuple[tuple[str, str, str], ...] = ()
    unmet: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRecord:
    """The planned cells, written before the first spec runs."""

    cells: tuple[CellKey, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemRecord:
    """One collected test and the cell it speaks for; `spec` is null for a test without one."""

    nodeid: str
    spec: str | None
    role: str
    lowerer: str | None
    gpu: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRecord:
    """A test was started on a worker."""

    nodeid: str
    worker: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRecord:
    """One test ended.

    :param cause: what was seen, if it failed: assertion, numeric, compile, run, crash, hang, collateral, leak.
    :param platform: `cpu` or `cuda` where the test executed something on a device.
    :param gpus: UUIDs of the cards that it really ran on.
    :param seconds: set-up, call and tear-down together.
    """

    nodeid: str
    spec: str | None
    role: str
    lowerer: str | None
    gpu: str | None
    status: Status
    cause: str | None = None
    reason: str | None = None
    platform: str | None = None
    gpus: tuple[str, ...] = ()
    seconds: float = 0.0
    attempts: int = 1
    measurements: Json = field(default_factory=dict)
    evidence: Json = field(default_factory=dict)
    worker: str | None = None


class Place(StrEnum):
    """Where a test was run again."""

    SAME = "same"  # in a fresh device process on the card where it failed
    SIBLING = "sibling"  # on another card of the same model


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRecord:
    """A failed test was run again, or could not be: a second opinion, which is no result of its own.

    :param card: UUID of the card that it was to run on, `partners` of the others of a gang; `gpus` are those that it
        really ran on.
    :param status: skipped where there is no answer, for the reason that `reason` says.
    """

    nodeid: str
    place: Place
    card: str
    status: Status
    cause: str | None = None
    reason: str | None = None
    platform: str | None = None
    gpus: tuple[str, ...] = ()
    seconds: float = 0.0
    worker: str | None = None
    evidence: Json = field(default_factory=dict)
    partners: tuple[str, ...] = ()

    @property
    def cards(self) -> tuple[str, ...]:
        """All that it was to run on, the lead's first."""
        return (self.card, *self.partners)

    @property
    def place_name(self) -> str:
        """The cards in short, for people."""
        return " and ".join(uuid[:12] for uuid in self.cards)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedRecord:
    """A test was never sent: a prerequisite of its cell is broken (`by`), or it can not be had (`by` null)."""

    nodeid: str
    by: str | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemRecord:
    """Something beside the tests went wrong; `ruling` is the best verdict that is still possible."""

    ruling: Ruling
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareRecord:
    """A counter of a card crossed the policy.

    :param gpu: the card's UUID, and `pci` its slot.
    :param counter: `family.counter`, with `@address` where a device on the bus counts it.
    :param words: what was seen, and against which bound; `reason` is the policy's.
    :param nodeid: the test that had the card; empty if it came after the last one.
    :param aside: whether the card gets nothing more in this run: a bridge above several speaks against none of them.
    :param left: slots of the run's other cards.
    """

    gpu: str
    pci: str
    counter: str
    seen: int
    words: str
    reason: str
    nodeid: str
    aside: bool
    left: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EndRecord:
    """Last line of a ledger. Without it, the run was cut off.

    :param interrupted: `keyboard`, `usage`, `internal`, `stopped` (-x, --maxfail) or null.
    """

    finished: str
    interrupted: str | None


Record = (
    RunRecord
    | PlanRecord
    | ItemRecord
    | StartRecord
    | ResultRecord
    | AttemptRecord
    | BlockedRecord
    | ProblemRecord
    | HardwareRecord
    | EndRecord
)


Ran = TypeVar("Ran", ResultRecord, AttemptRecord)  # a test was run, for the first time or again


def to_json(fact: Any) -> Any:
    """A dataclass (or a tree of them) as plain JSON data; JSON has no NaN and no infinity, so those become text."""
    if dataclasses.is_dataclass(fact) and not isinstance(fact, type):
        return {f.name: to_json(getattr(fact, f.name)) for f in dataclasses.fields(fact)}
    if isinstance(fact, dict):
        return {str(key): to_json(value) for key, value in fact.items()}
    if isinstance(fact, list | tuple | set | frozenset):
        return [to_json(value) for value in fact]
    if isinstance(fact, StrEnum):
        return fact.value
    if isinstance(fact, float) and not math.isfinite(fact):
        return str(fact)
    return fact
