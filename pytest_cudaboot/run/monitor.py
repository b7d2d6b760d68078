"""The cards of a run under watch, and what the policy says of what is seen. It runs in the controller, beside no test.

A worker that crashes or hangs takes nothing of it along, and no test shares an interpreter with it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import BoxError, CardLostError
from pytest_cudaboot.model import Gpu, Json
from pytest_cudaboot.probes import aer, pci
from pytest_cudaboot.probes.counters import Counters
from pytest_cudaboot.probes.kernel_log import KernelLog
from pytest_cudaboot.rules.hardware import HARDWARE, Alarm, Change, Policy
from pytest_cudaboot.rules.kernel_lines import KernelEvent, read_line
from pytest_cudaboot.run.watch import PATIENCE, CardWatch, Seen

LISTENING = 0.25  # seconds; so long an end may have to wait for the thread that hears of XIDs


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """A card, and the counter of its that crossed the policy.

    :param own: whether it is the card's, or that of a bridge above several.
    """

    gpu: Gpu
    alarm: Alarm
    own: bool


class Monitor:
    """Watches cards from when it is made until it is stopped.

    :param root: the machine's file system.
    :raises BoxError: if NVML does not have the cards any more.
    """

    def __init__(self, gpus: Sequence[Gpu], policy: Policy, root: Path = Path("/")) -> None:
        self._policy = policy
        self._counters = Counters([gpu.uuid for gpu in gpus])
        self._deaf = self._counters.watch_xids()
        self._unheard: str | None = None
        self._log = KernelLog(root)
        links = {card.address: aer.link_of(card.address, root) for card in pci.cards(root)}
        self._shared = _shared(links)
        self._watches = {
            gpu.uuid: CardWatch(
                gpu,
                self._counters,
                links.get(pci.normalized(gpu.pci)) or aer.link_of(pci.normalized(gpu.pci), root),
                hears=gpu.uuid not in self._deaf or self._log.absence is None,
            )
            for gpu in gpus
        }
        self._open: dict[str, tuple[str, ...]] = {}
        self._sums: dict[str, Change] = {}
        self._lines = threading.Lock()
        self._stop = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="cudaboot-xids", daemon=True)
        self._listener.start()

    def unobservable(self) -> dict[str, list[str]]:
        """By card, the names of what nobody answers: it is not clean, it is not known."""
        return {uuid: sorted(self._missing(watch)) for uuid, watch in self._watches.items()}

    def begin(self, nodeid: str, uuids: Sequence[str]) -> None:
        """A test gets these cards."""
        self._hear_log()
        self._open[nodeid] = tuple(uuid for uuid in uuids if uuid in self._watches)
        for uuid in self._open[nodeid]:
            self._watches[uuid].begin()

    def end(self, nodeid: str, *, failed: bool) -> tuple[Json, list[Crossing]]:
        """It has left them.

        :returns: the evidence of its cell, and what crossed the policy.
        """
        self._hear_log()
        evidence: Json = {}
        crossings: list[Crossing] = []
        for uuid in self._open.pop(nodeid, ()):
            seen = self._watches[uuid].end(failed=failed)
            found = self._judge(uuid, seen)
            evidence[uuid] = self._evidence(seen, found)
            crossings += found
        return ({HARDWARE: evidence} if evidence else {}), crossings

    def rest(self) -> list[Crossing]:
        """What has come after the last test, when nobody had the card."""
        self._hear_log()
        return [
            crossing
            for uuid, watch in self._watches.items()
            for crossing in self._judge(
                uuid, Seen(change=Change(seconds=0.0, xids=watch.strays()), figures={})
            )
        ]

    def stop(self) -> None:
        """No further test comes."""
        self._stop.set()
        self._listener.join(PATIENCE)
        for watch in self._watches.values():
            watch.stop()
        self._log.close()
        if not self._listener.is_alive() and all(watch.stopped for watch in self._watches.values()):
            self._counters.close()  # nobody is inside NVML any more

    # -- what is heard -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._stop.is_set():
            if len(self._deaf) == len(self._watches):
                self._stop.wait(LISTENING)
            else:
                self._hear_xid()
            self._hear_log()

    def _hear_xid(self) -> None:
        try:
            heard = self._counters.next_xid(LISTENING)
        except CardLostError:  # it is told again and again; whoever reads the card learns which one it is
            self._stop.wait(LISTENING)
            return
        except BoxError as error:  # from here on the kernel's log is all that there is
            self._unheard, self._deaf = str(error), frozenset(self._watches)
            return
        if heard is not None:
            uuid, xid = heard
            self._watches[uuid].hear(xid)

    def _hear_log(self) -> None:
        with self._lines:
            for event in filter(None, map(read_line, self._log.lines())):
                self._tell(event)

    def _tell(self, event: KernelEvent) -> None:
        for uuid, watch in self._watches.items():
            named = next((address for address in watch.link.devices if event.concerns(address)), None)
            if named is not None:
                # NVML tells of XIDs sooner, where it does.
                counts = uuid in self._deaf if event.xid is not None else named not in self._shared
                watch.read(event, counts=counts)

    # -- what it means -----------------------------------------------------------------------------------------

    def _judge(self, uuid: str, seen: Seen) -> list[Crossing]:
        """By the test's own time, and by all time that tests had the card: many short ones make a storm as well."""
        change = seen.change.then(Change(seconds=0.0, gigabytes=0.0, xids=seen.before))
        self._sums[uuid] = self._sums[uuid].then(seen.change) if uuid in self._sums else seen.change
        alarms = {alarm.counter: alarm for alarm in self._policy.alarms(self._sums[uuid])}
        alarms |= {alarm.counter: alarm for alarm in self._policy.alarms(change)}
        gpu = self._watches[uuid].gpu
        return [
            Crossing(gpu=gpu, alarm=alarm, own=alarm.counter.partition("@")[2] not in self._shared)
            for alarm in alarms.values()
        ]

    def _evidence(self, seen: Seen, crossings: Sequence[Crossing]) -> Json:
        facts = dict(seen.figures)
        if seen.change.deltas:
            facts["added"] = dict(seen.change.deltas)
        if seen.change.xids:
            facts["xids"] = list(seen.change.xids)
        if self._unheard is not None:
            facts["unobservable"] = self._unheard
        if crossings:
            facts["alarms"] = [
                f"{crossing.alarm.words}: {crossing.alarm.rule.reason}" for crossing in crossings
            ]
        if any(crossing.own for crossing in crossings):
            facts["against"] = "card"
        elif self._policy.accuses_toolchain(seen.change):
            facts["against"] = "toolchain"
        return facts

    def _missing(self, watch: CardWatch) -> set[str]:
        reading = watch.look()
        names = {"everything"} if reading is None else set(reading.missing)
        if watch.gpu.uuid in self._deaf:
            names.add("xid" if self._log.absence else "xid (by NVML; the kernel's log tells)")
        if not watch.link.observable:
            names.add("aer")
        if self._log.absence:
            names.add("log")
        return names


def _shared(links: dict[str, aer.Link]) -> frozenset[str]:
    """Devices above more than one card of the machine: what they count is no single card's."""
    above = [address for link in links.values() for address in link.devices]
    return frozenset(address for address in above if above.count(address) > 1)
