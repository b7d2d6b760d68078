"""SIGINT and SIGTERM: both interrupt the run, and neither its end. It knows nothing of what is run."""

from __future__ import annotations

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME_SECONDS = 1.0


class Interrupts:
    """Turns both signals into `KeyboardInterrupt`, as long as it is installed."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, object] = {}
        self._last = -SAME_SECONDS
        self.urgent = False  # whether a further signal counts at once: it then means "now"

    def install(self) -> None:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._interrupt)

    def ignore(self) -> None:
        """What comes next is short, and must be done."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # it is what `signal.signal` returned
        self._before.clear()

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        # A second one would otherwise cut off pytest's way from the first to the session's end.
        now = time.monotonic()
        if self.urgent or now - self._last > SAME_SECONDS:
            self._last = now
            raise KeyboardInterrupt(signal.Signals(number).name)
