"""What a test leaves on its cards: memory that somebody holds who ought to be gone. It blames nobody without a process.

A warm device process keeps its memory on purpose, so that growth alone is shown and decides nothing: memory is a
driver's to give back as soon as whoever holds it has ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cudaboot.errors import LeakError
from pytest_cudaboot.model import Gpu, Json
from pytest_cudaboot.probes import leftovers, nvml
from pytest_cudaboot.probes.leftovers import Leftover
from pytest_cudaboot.run.devices import Devices
from pytest_cudaboot.run.evidence import Evidence

MIB = 1 << 20
GROWN = 64 * MIB  # bytes; a context alone takes more
RELEASE = 1.0  # seconds that a process may take to be gone
LOOKS = 0.1


@dataclass(frozen=True, slots=True)
class _Before:
    """The cards as a test finds them."""

    since: int
    device: int | None
    uses: dict[str, nvml.CardUse]


class Hygiene:
    """Of one worker.

    :param run: the name that processes of this run bear.
    :param spared: processes that are pinned to the card and meant to live on.
    """

    def __init__(self, devices: Devices, run: str, spared: Sequence[int]) -> None:
        self._devices = devices
        self._run = run
        self._spared = set(spared)
        self._before: _Before | None = None
        self._answers = bool(devices.gpus) and nvml.keep_open()

    def begin(self) -> None:
        """A test finds the cards so."""
        uses = _uses(self._devices.gpus) if self._answers else {}
        self._before = _Before(leftovers.now(), self._devices.pid, uses)

    def end(self, evidence: Evidence) -> LeakError | None:
        """The test is over, its fixtures too. What it left behind is ended, so that the next one starts clean."""
        before, self._before = self._before, None
        if before is None or not before.uses:
            return None
        after = _uses(self._devices.gpus)
        facts = {uuid: _figures(before, uuid, after[uuid], self._devices.pid) for uuid in after}
        evidence.note(memory={uuid: figures for uuid, figures in facts.items() if figures})
        suspicious = any(self._more(before, uuid, use) for uuid, use in after.items())
        left = self._staying(before) if suspicious else []
        return self._leak(left, before, after) if left else None

    def _more(self, before: _Before, uuid: str, use: nvml.CardUse) -> bool:
        """Whether somebody is on the card who was not, or has more of it: a reason to look for a process, no more."""
        earlier = before.uses.get(uuid)
        if earlier is None:
            return False
        new = set(use.processes) - set(earlier.processes) - {self._devices.pid}
        return bool(new) or use.used - earlier.used > GROWN

    def _staying(self, before: _Before) -> list[Leftover]:
        """What is left after the test and does not end by itself; a program that was just killed takes a moment."""
        deadline = time.monotonic() + RELEASE
        while (left := self._left(before)) and time.monotonic() < deadline:
            time.sleep(LOOKS)
        return left

    def _left(self, before: _Before) -> list[Leftover]:
        spared = self._spared | ({self._devices.pid} if self._devices.pid else set())
        uuids = [gpu.uuid for gpu in self._devices.gpus]
        return leftovers.left_on(uuids, self._run, before.since, spared)

    def _leak(self, left: Sequence[Leftover], before: _Before, after: dict[str, nvml.CardUse]) -> LeakError:
        grown = sum(use.used - before.uses[uuid].used for uuid, use in after.items() if uuid in before.uses)
        alive = [str(process) for process in left if not leftovers.end(process)]
        self._devices.set_aside(alive)
        names = ", ".join(map(str, left))
        cards = ", ".join(after)
        what = "lives on after SIGKILL" if alive else "was ended"
        return LeakError(
            f"it leaves {len(left)} process{'es' if len(left) > 1 else ''} on {cards}, with {grown // MIB} MiB more in use "
            f"than before it: {names}, which {what}; wait for what you start, or end it"
        )


def _uses(gpus: Sequence[Gpu]) -> dict[str, nvml.CardUse]:
    found = {gpu.uuid: nvml.use_of(gpu.uuid) for gpu in gpus}
    return {uuid: use for uuid, use in found.items() if use is not None}


def _figures(before: _Before, uuid: str, use: nvml.CardUse, device: int | None) -> Json:
    """In MiB; of the device process alone where the driver names it."""
    earlier = before.uses.get(uuid)
    if earlier is None or (earlier.used == use.used and device is None):
        return {}
    own = use.processes.get(device) if device is not None else None
    figures = {"before_mib": earlier.used // MIB, "after_mib": use.used // MIB}
    return {**figures, "device_process_mib": own // MIB} if own is not None else figures
