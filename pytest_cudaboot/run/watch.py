"""One card under watch: a thread that reads it before, while and after a test has it. It judges nothing.

Whatever can hang in a driver hangs here, and whoever asks waits for a bounded time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_cudaboot.errors import CardLostError
from pytest_cudaboot.model import Gpu, Json
from pytest_cudaboot.probes import aer
from pytest_cudaboot.probes.counters import Counters, Reading, reasons
from pytest_cudaboot.rules.hardware import Change
from pytest_cudaboot.rules.kernel_lines import KernelEvent

TICK = 1.0  # seconds between two looks while a test has the card
PATIENCE = 10.0  # seconds for NVML to answer
LATE = 0.5  # seconds in which the driver tells of what a test did that failed
LINES = 5  # of the kernel's log that are kept of one test
BYTES = ("sent_bytes", "received_bytes")
IDLE = "idle"  # it holds clocks down whenever nothing is computed
SECOND = 1000  # ms
NOT_COUNTED = (*BYTES, "energy_mj")  # totals that have a place of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What happened on a card while a test had it.

    :param before: XIDs that came after the test before had ended.
    """

    change: Change
    figures: Json
    before: tuple[int, ...] = ()


@dataclass(slots=True)
class _Look:
    """One reading, with what the kernel counts of the card's link."""

    at: float
    reading: Reading
    link: dict[str, int]


@dataclass(slots=True)
class _Window:
    """The time that a test has the card."""

    began: float
    first: _Look | None = None
    last: _Look | None = None
    lost: str | None = None
    watts: list[float] = field(default_factory=list)
    hottest: float | None = None
    memory: float | None = None
    clocks: Counter[str] = field(default_factory=Counter)
    xids: list[int] = field(default_factory=list)
    before: tuple[int, ...] = ()
    log: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Order:
    """Something to do in the thread, and whether it is done."""

    do: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)


class CardWatch:
    """The thread of one card. Everything but the orders belongs to it alone.

    :param hears: whether XIDs of this card reach us at all, so that it is worth to wait for one.
    """

    def __init__(self, gpu: Gpu, counters: Counters, link: aer.Link, *, hears: bool) -> None:
        self.gpu = gpu
        self.link = link
        self._counters = counters
        self._hears = hears
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._window: _Window | None = None
        self._stray: list[int] = []
        self._thread = threading.Thread(target=self._run, name=f"cudaboot-watch-{gpu.index}", daemon=True)
        self._thread.start()

    # -- from other threads ------------------------------------------------------------------------------------

    def look(self) -> Reading | None:
        """One reading; None if the card is lost or does not answer in time."""
        found: list[Reading] = []
        self._ask(lambda: found.extend(look.reading for look in [self._look()] if look))
        return found[0] if found else None

    def begin(self) -> None:
        """A test gets the card."""
        self._ask(self._begin)

    def end(self, *, failed: bool) -> Seen:
        """The test has left the card.

        :param failed: whether it is worth to wait for the driver's word of it.
        """
        found: list[Seen] = []
        self._ask(lambda: found.extend(self._end(failed=failed)))
        return found[0] if found else Seen(change=Change(seconds=0.0, lost="silent"), figures={})

    def hear(self, xid: int) -> None:
        """The driver tells of an XID."""
        self._orders.put(_Order(lambda: self._hear(xid)))

    def read(self, event: KernelEvent, *, counts: bool) -> None:
        """The kernel has written of the card.

        :param counts: whether the device that it names is this card's alone, and nobody else told it before.
        """
        self._orders.put(_Order(lambda: self._read(event, counts=counts)))

    def strays(self) -> tuple[int, ...]:
        """XIDs that came while no test that is watched had the card, and that no later one was told of."""
        found: list[int] = []
        self._ask(lambda: found.extend(self._stray))
        return tuple(found)

    def stop(self) -> None:
        """No further test comes; a thread that hangs in the driver is left to the end of the process."""
        self._orders.put(None)
        self._thread.join(TICK)

    @property
    def stopped(self) -> bool:
        return not self._thread.is_alive()

    def _ask(self, do: Callable[[], None]) -> None:
        order = _Order(do)
        self._orders.put(order)
        order.done.wait(PATIENCE)

    # -- in the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                order = self._orders.get(timeout=TICK if self._window else None)
            except queue.Empty:
                self._sample()
                continue
            if order is None:
                return
            order.do()
            order.done.set()

    def _look(self) -> _Look | None:
        try:
            reading = self._counters.read(self.gpu.uuid)
        except CardLostError:
            if self._window is not None:
                self._window.lost = "lost"
            return None
        return _Look(time.monotonic(), reading, aer.read(self.link))

    def _begin(self) -> None:
        self._window = _Window(began=time.monotonic(), before=tuple(self._stray))
        self._stray.clear()
        self._sample()

    def _sample(self) -> None:
        """Take what has to be looked at more than twice: what is measured, and holds for a while."""
        window, look = self._window, self._look()
        if window is None or look is None:
            return
        gauges, earlier = look.reading.gauges, window.last
        window.first, window.last = window.first or look, look
        if "power_w" in gauges:
            window.watts.append(gauges["power_w"])
        window.hottest = _larger(window.hottest, gauges.get("temperature_c"))
        window.memory = _larger(window.memory, gauges.get("memory_bytes"))
        since = look.at - (earlier.at if earlier else look.at)
        for reason in reasons(int(gauges.get("clocks", 0))):
            window.clocks[reason] += round(since * 1000)

    def _hear(self, xid: int) -> None:
        (self._stray if self._window is None else self._window.xids).append(xid)

    def _read(self, event: KernelEvent, *, counts: bool) -> None:
        if event.xid is not None and counts:
            self._hear(event.xid)
        window = self._window
        if window is None:
            return
        if event.xid is None and counts:
            window.log[f"log.{event.kind}"] += 1
        if len(window.lines) < LINES:
            window.lines.append(event.line.partition(";")[2] or event.line)

    def _end(self, *, failed: bool) -> list[Seen]:
        window = self._window
        if window is None:
            return []
        deadline = time.monotonic() + LATE
        while failed and self._hears and not window.xids and (left := deadline - time.monotonic()) > 0:
            try:
                order = self._orders.get(timeout=left)
            except queue.Empty:
                break
            if order is not None:
                order.do()
                order.done.set()
        self._sample()
        self._window = None
        return [Seen(change=_change(window), figures=_figures(window), before=window.before)]


def _larger(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def _added(window: _Window) -> dict[str, int]:
    """By how much each total grew; one that fell was reset by somebody, and tells nothing."""
    if window.first is None or window.last is None:
        return {}
    first = {**window.first.reading.counters, **window.first.link}
    last = {**window.last.reading.counters, **window.last.link}
    return {name: grown for name, value in last.items() if (grown := value - first.get(name, value)) > 0}


def _change(window: _Window) -> Change:
    grown = _added(window)
    told = window.last is not None and set(BYTES) <= set(window.last.reading.counters)
    held = {f"clocks.{why}": ms // 1000 for why, ms in window.clocks.items() if ms >= SECOND and why != IDLE}
    return Change(
        seconds=time.monotonic() - window.began,
        deltas={**{name: n for name, n in grown.items() if name not in NOT_COUNTED}, **held, **window.log},
        gigabytes=sum(grown.get(name, 0) for name in BYTES) / 1e9 if told else None,
        xids=tuple(window.xids),
        lost=window.lost,
    )


def _figures(window: _Window) -> Json:
    """What is shown of the card in the cell, without what was not told; of what is counted, without what is zero.

    Energy is measured: a test may be over before the card has brought its sum up to date.
    """
    grown = _added(window)
    metered = window.last is not None and "energy_mj" in window.last.reading.counters
    figures = {
        "energy_j": round(grown.get("energy_mj", 0) / 1000, 3) if metered else None,
        "power_w": round(sum(window.watts) / len(window.watts), 1) if window.watts else None,
        "temperature_c": window.hottest,
        "memory_mib": round(window.memory / (1 << 20)) if window.memory is not None else None,
        "moved_gb": round(sum(grown.get(name, 0) for name in BYTES) / 1e9, 6) or None,
        "log": window.lines or None,
        "xids_before": list(window.before) or None,
    }
    return {name: value for name, value in figures.items() if value is not None}
