"""Never a silent minute: a thread that says what is still running when nothing else was heard for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

QUIET_SECONDS = 20.0
JOIN_SECONDS = 5.0  # a terminal that takes nothing would keep it


class Heartbeat:
    """Speaks only after silence, and from then on once each `quiet` seconds until something ends."""

    def __init__(self, say: Callable[[str], None], quiet: float = QUIET_SECONDS) -> None:
        self._say = say
        self._quiet = quiet
        self._started: dict[str, float] = {}
        self._heard = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cudaboot-heartbeat", daemon=True)

    def start(self) -> None:
        self._heard = time.monotonic()
        self._thread.start()

    def begin(self, what: str) -> None:
        self._heard = time.monotonic()
        self._started[what] = self._heard

    def end(self, what: str) -> None:
        self._heard = time.monotonic()
        self._started.pop(what, None)

    def stop(self) -> None:
        """No line comes after this."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    def _watch(self) -> None:
        while not self._stop.wait(min(1.0, self._quiet / 4)):
            now = time.monotonic()
            if now - self._heard >= self._quiet:
                self._heard = now
                self._say(self._line(now))

    def _line(self, now: float) -> str:
        running = ", ".join(f"{what} for {now - since:.0f} s" for what, since in list(self._started.items()))
        return f"cudaboot: still running {running}" if running else "cudaboot: still collecting"
