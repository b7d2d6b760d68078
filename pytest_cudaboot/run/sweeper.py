"""Sees to it that nothing of a run outlives it, not even what a killed test's command has started."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from pytest_cudaboot.probes import sweep
from pytest_cudaboot.probes.process import start_process

END_SECONDS = 10.0


class Sweeper:
    """A process that waits for this one to end; everything that this one starts from now on bears the run's mark.

    :param environ: this process's environment, which its children inherit.
    """

    def __init__(self, run: str, environ: MutableMapping[str, str]) -> None:
        theirs, self._ours = os.pipe()
        argv = [sys.executable, "-I", "-S", sweep.__file__, run]
        with os.fdopen(theirs, "rb") as end:
            self._group = start_process(argv, cwd="/", env={}, stdin=end)
        environ[sweep.MARK] = run

    def release(self) -> None:
        """The run is over: let it sweep, and wait until it has."""
        os.close(self._ours)
        self._group.wait(END_SECONDS)
        self._group.kill()
