"""A schedule of faults: which one, in whom, and at which event of which cell. Pure; a seed always gives the same."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.model import CellKey, to_json

PHASES = ("setup", "call", "teardown")
MOST_FAULTS = 4
SPARED = 25  # one seed in so many has no fault at all: what cries wolf is found by it
TERMINAL_CHANCE = 0.15


class Victim(StrEnum):
    """The process that a fault is committed in, or against."""

    DEVICE = "device"
    WORKER = "worker"
    CONTROLLER = "controller"


class Act(StrEnum):
    """What is done to it."""

    CRASH = "crash"  # SIGSEGV, by reading at address 0
    ABORT = "abort"
    EXIT = "exit"  # `exit(1)` in C, which no Python handler sees
    HANG = "hang"  # in C, with the GIL released
    HANG_HOLDING = "hang-holding"  # in C, with the GIL held
    KILL = "kill"  # SIGKILL from outside
    STICKY = "sticky"  # this call of the device fails, and every later one of that process
    STICKY_LATE = "sticky-late"  # this call still succeeds; every later one of that process fails
    OUT_OF_MEMORY = "out-of-memory"  # the card's, in the words of a lowerer
    MEMORY_LIMIT = "memory-limit"  # an allocation on the host that the kernel refuses
    FULL_DISK = "full-disk"  # nothing more can be written
    INTERRUPT = "interrupt"  # SIGINT
    TERMINATE = "terminate"  # SIGTERM


_ANYWHERE = (Act.CRASH, Act.ABORT, Act.EXIT, Act.HANG, Act.HANG_HOLDING)
ACTS: Mapping[Victim, tuple[Act, ...]] = {
    Victim.DEVICE: (*_ANYWHERE, Act.KILL, Act.STICKY, Act.STICKY_LATE, Act.OUT_OF_MEMORY, Act.MEMORY_LIMIT),
    Victim.WORKER: (*_ANYWHERE, Act.KILL, Act.MEMORY_LIMIT),
    Victim.CONTROLLER: (Act.KILL, Act.FULL_DISK, Act.INTERRUPT, Act.TERMINATE),
}
KINDS = tuple((victim, act) for victim, acts in ACTS.items() for act in acts)
HANGS = (Act.HANG, Act.HANG_HOLDING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A cell that faults can be aimed at.

    :param calls: how many calls of the device its test makes in each phase; empty if it has no device.
    """

    cell: CellKey
    calls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault, committed once.

    :param phase: of the test of that cell: the fault comes when the phase begins, or at a call of the device in it.
    :param call: the number of that call within the phase, from 1; null for a fault that is not of the device.
    """

    victim: Victim
    act: Act
    cell: CellKey
    phase: str
    call: int | None = None

    @property
    def terminal(self) -> bool:
        """Whether the run ends by it."""
        return self.victim is Victim.CONTROLLER

    @property
    def kind(self) -> str:
        return f"{self.victim}:{self.act}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """All faults of a run."""

    seed: int
    faults: tuple[Fault, ...]

    def dumps(self) -> str:
        return json.dumps(to_json(self), indent=1)

    @classmethod
    def loads(cls, text: str) -> Schedule:
        """The schedule from `dumps`.

        :raises UsageError: if the text is none.
        """
        try:
            data = json.loads(text)
            return cls(seed=int(data["seed"]), faults=tuple(_fault(entry) for entry in data["faults"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"no schedule of faults: {error!r}; right is what `Schedule.dumps` gives"
            ) from None

    def at(self, cell: CellKey) -> Iterator[tuple[int, Fault]]:
        """The faults that a cell's test may commit, numbered."""
        return ((number, fault) for number, fault in enumerate(self.faults) if fault.cell == cell)


def draw(seed: int, targets: Sequence[Target]) -> Schedule:
    """The schedule of a seed: its first fault is of the kind whose turn it is, so that a row of seeds has them all."""
    chance = random.Random(seed)  # noqa: S311 - that it can be foretold is the point
    if seed % SPARED == 0:
        return Schedule(seed=seed, faults=())
    kinds = [KINDS[seed % len(KINDS)]]
    ordinary = [kind for kind in KINDS if kind[0] is not Victim.CONTROLLER]
    kinds += chance.sample(ordinary, chance.randint(0, MOST_FAULTS - 1))
    if kinds[0][0] is not Victim.CONTROLLER and chance.random() < TERMINAL_CHANCE:
        kinds.append((Victim.CONTROLLER, chance.choice(ACTS[Victim.CONTROLLER])))
    free = chance.sample(list(targets), len(targets))
    drawn = (_drawn(chance, victim, act, free) for victim, act in kinds)
    return Schedule(seed=seed, faults=tuple(fault for fault in drawn if fault is not None))


def _drawn(chance: random.Random, victim: Victim, act: Act, free: list[Target]) -> Fault | None:
    """A fault of that kind in the first target that can have it; a target has one fault at most."""
    target = next((target for target in free if victim is not Victim.DEVICE or target.calls), None)
    if target is None:
        return None
    free.remove(target)
    # What is no part of a spec's own work has a long budget, which is no time to wait for.
    phases = ("call",) if act in HANGS else PHASES
    if victim is not Victim.DEVICE:
        return Fault(victim=victim, act=act, cell=target.cell, phase=chance.choice(phases))
    phase = chance.choice([phase for phase in phases if target.calls[phase]])
    call = chance.randint(1, target.calls[phase])
    return Fault(victim=victim, act=act, cell=target.cell, phase=phase, call=call)


def _fault(entry: Mapping[str, object]) -> Fault:
    words = dict(entry)
    victim, act, cell = Victim(str(words.pop("victim"))), Act(str(words.pop("act"))), words.pop("cell")
    if act not in ACTS[victim] or words["phase"] not in PHASES or not isinstance(cell, dict):
        raise ValueError(f"no fault {entry!r}")
    return Fault(victim=victim, act=act, cell=CellKey(**cell), **words)  # type: ignore[arg-type] # JSON has no types
