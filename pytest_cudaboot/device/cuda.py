"""The few calls of the CUDA driver that a pin is proved with. It creates no context."""

from __future__ import annotations

import ctypes
import uuid
from dataclasses import dataclass

from pytest_cudaboot.errors import BoxError, ToolMissingError

LIBRARY = "libcuda.so.1"
NO_DEVICE = 100

_FUNCTIONS = (
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    # The old cuDeviceGetUuid answers with the card's identity where a MIG instance is meant.
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxGetState",
    "cuGetErrorName",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaDevice:
    """A device as the driver enumerates it inside this process's mask.

    :param ordinal: the driver's, which the mask decides.
    :param memory: the driver's total, bytes; it differs from NVML's.
    :param context_active: whether this process holds the device's primary context already.
    """

    ordinal: int
    uuid: str
    name: str
    memory: int
    context_active: bool


class Driver:
    """libcuda, opened and initialised."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._lib = ctypes.CDLL(library)
        except OSError as error:
            raise ToolMissingError(f"no CUDA driver: {error}; it comes with NVIDIA's kernel driver") from None
        missing = [name for name in _FUNCTIONS if not hasattr(self._lib, name)]
        if missing:
            raise BoxError(
                f"{library} lacks {', '.join(missing)}; it is no CUDA driver of version 11.4 or later"
            )
        status = self._lib.cuInit(0)
        # A mask that hides every card is an answer, not a fault.
        self._empty = status == NO_DEVICE
        if not self._empty:
            self._check("cuInit", status)

    def version(self) -> int:
        """The newest CUDA that the driver supports, as 1000 x major + 10 x minor."""
        version = ctypes.c_int()
        self._check("cuDriverGetVersion", self._lib.cuDriverGetVersion(ctypes.byref(version)))
        return version.value

    def devices(self) -> list[CudaDevice]:
        if self._empty:
            return []
        count = ctypes.c_int()
        self._check("cuDeviceGetCount", self._lib.cuDeviceGetCount(ctypes.byref(count)))
        return [self._device(ordinal) for ordinal in range(count.value)]

    def _device(self, ordinal: int) -> CudaDevice:
        handle, memory = ctypes.c_int(), ctypes.c_size_t()
        identity, name = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(256)
        flags, active = ctypes.c_uint(), ctypes.c_int()
        calls = {
            "cuDeviceGet": (ctypes.byref(handle), ordinal),
            "cuDeviceGetUuid_v2": (ctypes.byref(identity), handle),
            "cuDeviceGetName": (name, len(name), handle),
            "cuDeviceTotalMem_v2": (ctypes.byref(memory), handle),
            "cuDevicePrimaryCtxGetState": (handle, ctypes.byref(flags), ctypes.byref(active)),
        }
        for function, arguments in calls.items():
            self._check(function, getattr(self._lib, function)(*arguments), f" for device {ordinal}")
        return CudaDevice(
            ordinal=ordinal,
            uuid=f"GPU-{uuid.UUID(bytes=bytes(identity))}",
            name=name.value.decode(errors="replace"),
            memory=memory.value,
            context_active=bool(active.value),
        )

    def _check(self, function: str, status: int, where: str = "") -> None:
        if status == 0:
            return
        name = ctypes.c_char_p()
        known = self._lib.cuGetErrorName(status, ctypes.byref(name)) == 0 and name.value is not None
        words = name.value.decode() if known and name.value else "unknown to this driver"
        raise BoxError(f"{function}{where} failed with {status} ({words})")


def visible_devices() -> list[CudaDevice]:
    """What the driver shows to this process, in its order; empty if the mask hides all of it."""
    return Driver().devices()
