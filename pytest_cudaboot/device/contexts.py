"""Whether the CUDA contexts that this process holds still work. It opens no driver and makes no context."""

from __future__ import annotations

import ctypes
import os
import uuid
from dataclasses import dataclass
from typing import Any

from pytest_cudaboot.device.cuda import LIBRARY

# The driver says of each: the context, or the process, has to be given up.
STICKY = {
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    220: "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    226: "CUDA_ERROR_CONTAINED",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    702: "CUDA_ERROR_LAUNCH_TIMEOUT",
    709: "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    710: "CUDA_ERROR_ASSERT",
    714: "CUDA_ERROR_HARDWARE_STACK_ERROR",
    715: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    716: "CUDA_ERROR_MISALIGNED_ADDRESS",
    717: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    718: "CUDA_ERROR_INVALID_PC",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    721: "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    999: "CUDA_ERROR_UNKNOWN",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A context that does not work.

    :param gpu: the card's UUID, or its ordinal where the driver does not tell even that.
    :param call: the driver's function that said so.
    :param sticky: whether the error is known to last as long as the process.
    """

    gpu: str
    code: int
    name: str
    call: str
    sticky: bool


def faults(library: str = LIBRARY) -> list[Fault]:
    """The broken contexts of this process; empty if the driver was never loaded, or holds none.

    It waits for whatever still runs on a card, so it has to be called within a budget.
    """
    try:
        driver = ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
    except OSError:
        return []
    count = ctypes.c_int()
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        # A driver that was never initialised, or is a stand-in to link against, has no context that could be broken.
        return [_fault(driver, "every card", "cuDeviceGetCount", status)] if status in STICKY else []
    return [fault for ordinal in range(count.value) if (fault := _look(driver, ordinal)) is not None]


def _look(driver: Any, ordinal: int) -> Fault | None:
    """Wait for the primary context of one card, if this process holds it."""
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    call, status = "cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), ordinal)
    if not status:
        call = "cuDevicePrimaryCtxGetState"
        status = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    if not status and active.value:
        call, status = _synchronize(driver, device)
    return _fault(driver, _name(driver, device, ordinal), call, status) if status else None


def _synchronize(driver: Any, device: ctypes.c_int) -> tuple[str, int]:
    """The first call that fails, and its status; everything is as before after it."""
    context, popped = ctypes.c_void_p(), ctypes.c_void_p()
    status = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    if status:
        return "cuDevicePrimaryCtxRetain", int(status)
    status = driver.cuCtxPushCurrent_v2(context)
    call = "cuCtxPushCurrent"
    if not status:
        call, status = "cuCtxSynchronize", driver.cuCtxSynchronize()
        driver.cuCtxPopCurrent_v2(ctypes.byref(popped))
    driver.cuDevicePrimaryCtxRelease_v2(device)
    return call, int(status)


def _name(driver: Any, device: ctypes.c_int, ordinal: int) -> str:
    identity = (ctypes.c_ubyte * 16)()
    if driver.cuDeviceGetUuid_v2(ctypes.byref(identity), device):
        return f"device {ordinal}"
    return f"GPU-{uuid.UUID(bytes=bytes(identity))}"


def _fault(driver: Any, gpu: str, call: str, status: int) -> Fault:
    told = ctypes.c_char_p()
    known = driver.cuGetErrorName(status, ctypes.byref(told)) == 0 and told.value is not None
    name = told.value.decode() if known and told.value else STICKY.get(status, "unknown to this driver")
    return Fault(gpu=gpu, code=int(status), name=name, call=call, sticky=status in STICKY)
