"""The device process's service with a fault in it: what was armed happens at the next call. It knows no test."""

from __future__ import annotations

from typing import Any

from pytest_cudaboot.device.contexts import Fault
from pytest_cudaboot.device.service import DeviceService
from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.faults.acts import IN_PROCESS
from pytest_cudaboot.faults.schedule import Act
from pytest_cudaboot.model import Json, to_json

TARGET = f"{__name__}:FaultyService"
EXECUTE = 3  # the ABI's code for a failed execution
STICKY_NAME = "CUDA_ERROR_ILLEGAL_ADDRESS"
STICKY_WORDS = f"{STICKY_NAME}: an illegal memory access was encountered"
STICKY_FAULT: Json = to_json(
    Fault(gpu="every card", code=700, name=STICKY_NAME, call="cuCtxSynchronize", sticky=True)
)
MEMORY_WORDS = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 85899345920 bytes"


class FaultyService:
    """A real service, whose methods are reached through what is armed."""

    def __init__(self) -> None:
        self._inner = DeviceService()
        self._armed: Act | None = None
        self._poisoned = False

    def arm(self, act: str) -> None:
        """Have the next call commit it."""
        self._armed = Act(act)

    def health(self) -> list[Json]:
        """The real answer, and what a driver says of a context that is broken for good."""
        return [*self._inner.health(), *([STICKY_FAULT] if self._poisoned else ())]

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._inner, verb)
        return method if verb.startswith("_") or verb == "close" else self._reached(method)

    def _reached(self, method: Any) -> Any:
        def reached(**arguments: Any) -> Any:
            if self._poisoned:
                raise ShimError(STICKY_WORDS, EXECUTE)
            act, self._armed = self._armed, None
            if act is not None:
                self._commit(act)
            return method(**arguments)

        return reached

    def _commit(self, act: Act) -> None:
        match act:
            case Act.STICKY:
                self._poisoned = True
                raise ShimError(STICKY_WORDS, EXECUTE)
            case Act.STICKY_LATE:
                self._poisoned = True
            case Act.OUT_OF_MEMORY:
                raise ShimError(MEMORY_WORDS, EXECUTE)
            case _:
                IN_PROCESS[act]()
