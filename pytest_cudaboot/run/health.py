"""Whether a device process may go on after a test, asked of itself; what may not is ended. It keeps nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_cudaboot.errors import (
    CudabootError,
    DeviceCrashError,
    DeviceError,
    DeviceHangError,
    DevicePoisonedError,
)

if TYPE_CHECKING:
    from pytest_cudaboot.device.client import DeviceProcess

PROBE_BUDGET = 20.0  # seconds; a probe waits for what a spec has left running on its card


def broken_by(process: DeviceProcess) -> DeviceError | None:
    """What is wrong with a process; if anything is, it has been ended. Nothing, if it had been ended before."""
    if process.broken is not None:
        return None
    try:
        faults = process.call("health", budget=PROBE_BUDGET)
    except (DeviceCrashError, DeviceHangError) as error:
        return error
    except CudabootError as error:
        return _ended(process, f"it leaves a device process that can not be probed, and was ended: {error}")
    if not faults:
        return None
    words = "; ".join("{gpu} answers {call} with {code} ({name})".format(**fault) for fault in faults)
    sticky = "a sticky error" if all(fault["sticky"] for fault in faults) else "an error"
    process.evidence["sticky"] = faults
    return _ended(process, f"it leaves {sticky} in its device process, which was ended: {words}")


def _ended(process: DeviceProcess, words: str) -> DevicePoisonedError:
    process.condemn(words.partition("\n")[0])
    return DevicePoisonedError(words, process.evidence)
