"""What a device process does when asked: its public methods are the verbs. Plain data and arrays in and out."""

from __future__ import annotations

import itertools
import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pytest_cudaboot
from pytest_cudaboot.device import contexts, cuda
from pytest_cudaboot.errors import DeviceError, UnsupportedError
from pytest_cudaboot.lowerers.base import Array, Lowerer, Session, config_from_json, make_lowerer
from pytest_cudaboot.model import Json, to_json
from pytest_cudaboot.probes import maps

UNSUPPORTED = 99

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class DeviceService:
    """One lowerer and its sessions, named by small numbers."""

    def __init__(self) -> None:
        self._lowerer: Lowerer | None = None
        self._sessions: dict[int, Session] = {}
        self._numbers = itertools.count(1)

    def hello(self) -> Json:
        versions = {"pytest_cudaboot": pytest_cudaboot.__version__, "numpy": np.__version__}
        return {"pid": os.getpid(), "python": platform.python_version(), "versions": versions}

    def prove(self) -> list[str]:
        """UUIDs of the cards that the driver shows to this process, in its order."""
        return [device.uuid for device in cuda.visible_devices()]

    def driver(self) -> Json:
        """The driver's CUDA version and its view of each device."""
        found = cuda.Driver()
        return {"version": found.version(), "devices": to_json(found.devices())}

    def open(self, config: Mapping[str, Any]) -> Json:
        """Load a lowerer; a process holds one, since two in it could not be told apart.

        :param config: the fields of a :class:`LowererConfig`.
        :returns: the lowerer's facts.
        """
        if self._lowerer is not None:
            raise DeviceError("a lowerer is open already; a device process holds one")
        self._lowerer = make_lowerer(config_from_json(config))
        return self._lowerer.facts()

    def facts(self) -> Json:
        return self._opened().facts()

    def session_open(self, path: str, source: str | None = None) -> Json:
        """Load an artifact.

        :returns: `session`, a number, and `signature` {`entry`, `inputs`, `outputs`} with `shape` and `dtype` each.
        """
        session = self._opened().open_session(Path(path), Path(source) if source else None)
        number = next(self._numbers)
        self._sessions[number] = session
        return {"session": number, "signature": to_json(session.signature)}

    def invoke(
        self,
        session: int,
        fn: str,
        arrays: Sequence[Array],
        outputs: Sequence[Sequence[int]] | None = None,
    ) -> list[Array]:
        """Run once.

        :param outputs: shapes to make room for; None for those of the signature.
        """
        shapes = None if outputs is None else [tuple(shape) for shape in outputs]
        return self._session(session).invoke(fn, arrays, shapes)

    def repeat(
        self,
        session: int,
        fn: str,
        arrays: Sequence[Array],
        n: int,
        feedback: Sequence[tuple[int, int]],
        loss: int | None = None,
    ) -> Json:
        """Run n times, outputs fed back to inputs, with nothing crossing the process boundary in between.

        :param feedback: pairs (output, input): that output replaces that input in the next step.
        :param loss: index of the output that is the loss, a scalar; None if there is none.
        :returns: `arrays`, the last step's outputs; `seconds`, one a step; `losses`, one a step if there is one.
        """
        running, inputs = self._session(session), list(arrays)
        made: list[Array] = []
        seconds: list[float] = []
        losses: list[float] = []
        for _ in range(n):
            started = time.perf_counter()
            made = running.invoke(fn, inputs)
            seconds.append(time.perf_counter() - started)
            for output, into in feedback:
                inputs[into] = made[output]
            if loss is not None:
                losses.append(float(made[loss].reshape(())))
        return {"arrays": made, "seconds": seconds, "losses": losses}

    def session_call(self, session: int, method: str, **arguments: Any) -> Any:
        """Call what only some lowerer's sessions have, such as `invoke_dp` of XLA's.

        After `session_call(n, "close")` the session keeps its number and its shim gets NULL for it.
        """
        found = None if method.startswith("_") else getattr(self._session(session), method, None)
        if not callable(found):
            raise UnsupportedError(f"sessions of this lowerer have no {method!r}", UNSUPPORTED)
        return found(**arguments)

    def session_close(self, session: int) -> None:
        self._session(session).close()
        del self._sessions[session]

    def mapped(self) -> dict[str, list[str]]:
        """Shared objects in this process: name to paths. Two paths are two copies of one library."""
        return maps.by_name(maps.shared_objects())

    def health(self) -> list[Json]:
        """What is broken in this process for as long as it lives; empty where it may go on.

        A lowerer that knows more than CUDA's driver has a method `faults` that answers in the same form.
        """
        more = getattr(self._lowerer, "faults", None)
        return [*map(to_json, contexts.faults()), *(more() if more is not None else ())]

    def memory(self) -> Json:
        """Resident memory of this process, now and at its peak, bytes."""
        resident, peak = maps.resident_bytes()
        return {"resident": resident, "peak": peak}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        if self._lowerer is not None:
            self._lowerer.close()
            self._lowerer = None

    def _opened(self) -> Lowerer:
        if self._lowerer is None:
            raise DeviceError("no lowerer is open in this device process; call 'open' first")
        return self._lowerer

    def _session(self, number: int) -> Session:
        if number not in self._sessions:
            raise DeviceError(f"no session {number!r}; open are: {sorted(self._sessions) or 'none'}")
        return self._sessions[number]
