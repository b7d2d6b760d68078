"""Cards that are set aside for the rest of a run, since something on them can not be killed. Files in the run's own folder.

The busy lock keeps other runs off such a card; it can not keep this run's own replacement of a killed worker off it.
"""

from __future__ import annotations

import time
from pathlib import Path

from pytest_cudaboot.errors import CardAsideError
from pytest_cudaboot.probes import procfs

PATIENCE = 5.0


class Asides:
    """What the processes of one run know of each other's cards.

    :param folder: private to the run; every worker of it has the same.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def started(self, uuid: str, pid: int) -> None:
        """A device process is on the card: whoever comes after must not find it there."""
        _write(self._folder / f"{uuid}.device", f"{pid} {procfs.started_at(pid)}")

    def set_aside(self, uuid: str, why: str) -> None:
        """Nobody of this run goes on that card any more; the first reason stays."""
        path = self._folder / f"{uuid}.aside"
        if not path.exists():
            _write(path, why)

    def reason(self, uuid: str) -> str | None:
        """Why a card is set aside, or None."""
        try:
            return (self._folder / f"{uuid}.aside").read_text()
        except FileNotFoundError:
            return None

    def enter(self, uuid: str) -> None:
        """Make sure that nothing of this run is left on the card.

        :raises CardAsideError: if the card is set aside, or a process that was killed there does not end.
        """
        if self.reason(uuid) is None and (left := self._left(uuid)):
            self.set_aside(uuid, f"still alive after SIGKILL: {left}")
        if why := self.reason(uuid):
            raise CardAsideError(f"{uuid} is set aside for the rest of this run: {why}")

    def _left(self, uuid: str) -> str | None:
        """The last device process of the card, if it outlives a bounded wait: its worker may have been killed just now."""
        try:
            pid, started = map(int, (self._folder / f"{uuid}.device").read_text().split())
        except FileNotFoundError:
            return None
        deadline = time.monotonic() + PATIENCE
        while (state := procfs.process_state(pid)) is not None and procfs.started_at(pid) == started:
            if procfs.overdue(state, deadline):
                return f"{pid} ({state.name}, state {state.letter})"
            time.sleep(0.02)
        return None


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.write_text(text)
    scratch.replace(path)
