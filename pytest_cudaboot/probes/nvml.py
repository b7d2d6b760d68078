"""NVML's word on the cards and the driver, asked once; `counters.py` is who asks again and again."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Gpu

LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class NvmlView:
    """What NVML answered.

    :param driver: driver version, or null where there is no driver (`absence` then says why).
    :param cuda: the driver's CUDA version as NVML codes it, 13000 for 13.0.
    :param mig: UUIDs of the cards in MIG mode.
    :param denied: how many cards NVML counts and does not let this process have, nor name.
    """

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: int | None = None
    mig: tuple[str, ...] = ()
    denied: int = 0
    absence: str | None = None


def look() -> NvmlView:
    """Ask NVML once.

    :raises BoxError: if NVML is there and fails: a lost card, a driver that does not match its library.
    """
    import pynvml

    try:
        with _session():
            return _view()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as absent:
        return NvmlView(absence=str(absent))
    except pynvml.NVMLError as error:
        raise BoxError(f"NVML fails: {error}; `nvidia-smi` shows more") from error


def simulated_root() -> Path | None:
    """The root folder of the simulated box that NVML answers for; None where it is no simulation.

    The library itself tells, so that no variable can pass a machine off as a simulation, or the reverse.

    :raises BoxError: if it is one, and was not told of its root.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    if not hasattr(library, "cudaboot_simulated_root"):
        return None
    library.cudaboot_simulated_root.restype = ctypes.c_char_p
    root = library.cudaboot_simulated_root()
    if not root:
        raise BoxError(
            f"{LIBRARY} is a simulation, and CUDABOOT_BOX_ROOT names no folder for the box's files"
        )
    return Path(os.fsdecode(root))


@contextmanager
def _session() -> Iterator[None]:
    import pynvml

    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _view() -> NvmlView:
    import pynvml

    handles = [(index, _handle(index)) for index in range(pynvml.nvmlDeviceGetCount())]
    gpus = {_gpu(index, handle): handle for index, handle in handles if handle is not None}
    return NvmlView(
        gpus=tuple(gpus),
        driver=pynvml.nvmlSystemGetDriverVersion(),
        cuda=pynvml.nvmlSystemGetCudaDriverVersion_v2(),
        mig=tuple(gpu.uuid for gpu, handle in gpus.items() if _mig(handle)),
        denied=len(handles) - len(gpus),
    )


def _handle(index: int) -> object | None:
    """NVML counts the cards that a container or a control group was not given, and does not let it have them."""
    import pynvml

    try:
        return pynvml.nvmlDeviceGetHandleByIndex(index)  # type: ignore[no-any-return]
    except pynvml.NVMLError_NoPermission:
        return None


def _gpu(index: int, handle: object) -> Gpu:
    import pynvml

    return Gpu(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        memory=_memory(handle),
        pci=pynvml.nvmlDeviceGetPciInfo(handle).busId,
    )


def _memory(handle: object) -> int:
    """Bytes of its own; none on a chip that shares the machine's memory, for which NVML has no answer."""
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError_NotSupported:
        return 0


def _mig(handle: object) -> bool:
    import pynvml

    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError_NotSupported:  # consumer cards have no such mode
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def cards_used_by(pid: int) -> dict[str, int | None] | None:
    """On which cards a process has compute work, UUID to bytes (None where the driver does not say).

    :returns: None if NVML names the process on no card: in a container it reports the host's process ids.
    """
    import pynvml

    with _session():
        used = {
            uuid: process.usedGpuMemory
            for uuid, handle in _handles().items()
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if process.pid == pid
        }
    return used or None


@dataclass(frozen=True, kw_only=True, slots=True)
class CardUse:
    """Who has how much of a card's memory.

    :param used: bytes, by anybody, without what the driver keeps for itself where it tells that apart.
    :param processes: bytes by process id as NVML has it, null where it does not say how much; in a container the ids
        may be the host's, or there may be none.
    """

    total: int
    used: int
    processes: Mapping[int, int | None]


def keep_open() -> bool:
    """Stay in touch with NVML until the process ends, so that each later question costs little.

    :returns: whether there is an NVML to ask.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def use_of(uuid: str) -> CardUse | None:
    """Who uses a card; None where NVML does not say, or has lost it."""
    import pynvml

    try:
        with _session():
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            memory = _plain_memory(handle)
            named = {process.pid: process.usedGpuMemory for process in _processes(handle)}
    except pynvml.NVMLError:
        return None
    return CardUse(total=int(memory.total), used=int(memory.used), processes=named)


def _plain_memory(handle: object) -> Any:
    import pynvml

    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_ArgumentVersionMismatch):
        return pynvml.nvmlDeviceGetMemoryInfo(handle)  # an older driver, which counts its own share in


def _processes(handle: object) -> list[Any]:
    import pynvml

    found: list[Any] = list(pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
    return found + list(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))


def memory_used(uuid: str) -> int | None:
    """Bytes in use on a card, whoever uses them; None where NVML does not say, or has no such card."""
    import pynvml

    with _session():
        handle = _handles().get(uuid)
        try:
            return None if handle is None else int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        except pynvml.NVMLError_NotSupported:
            return None


def memory_of(uuids: Iterable[str]) -> dict[str, int | None]:
    """Bytes in use on some cards, to be held against later; as :func:`memory_used` tells them."""
    return {uuid: memory_used(uuid) for uuid in uuids}


def grown_since(before: Mapping[str, int | None]) -> dict[str, int | None]:
    """Bytes by which the use of some cards has grown, whoever uses them; None where NVML does not say.

    :param before: from :func:`memory_of`.
    """
    now = memory_of(before)
    pairs = {uuid: (then, now[uuid]) for uuid, then in before.items()}
    return {uuid: None if a is None or b is None else b - a for uuid, (a, b) in pairs.items()}


def _handles() -> dict[str, object]:
    """The cards that this process may touch, by UUID."""
    import pynvml

    handles = [_handle(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return {str(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in handles if handle is not None}
