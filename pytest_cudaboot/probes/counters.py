"""What a card's driver counts and measures, read through NVML again and again. It judges nothing, and resets nothing."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cudaboot.errors import BoxError, CardLostError

FIELDS = {  # NVML's field numbers, which its header and `pynvml` name NVML_FI_DEV_*
    3: "ecc.corrected",
    4: "ecc.uncorrected",
    83: "energy_mj",
    94: "pcie.replay",
    95: "pcie.replay_rollover",
    142: "remap.corrected",
    143: "remap.uncorrected",
    144: "remap.pending",
    145: "remap.failure",
    173: "pcie.correctable",
    174: "pcie.naks_received",
    175: "pcie.receiver_error",
    176: "pcie.bad_tlp",
    177: "pcie.naks_sent",
    178: "pcie.bad_dllp",
    179: "pcie.non_fatal",
    180: "pcie.fatal",
    181: "pcie.unsupported_request",
    182: "pcie.lcrc",
    183: "pcie.lane",
    197: "sent_bytes",
    198: "received_bytes",
}
REASONS = {  # bits of what holds a card's clocks down
    0x1: "idle",
    0x2: "setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
    0x100: "display",
}
GAUGES = ("temperature_c", "power_w", "clocks", "memory_bytes")
_VALUES = (
    "dVal",
    "uiVal",
    "ulVal",
    "ullVal",
    "sllVal",
    "siVal",
    "usVal",
)  # by NVML's number of a value's type


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A card at one moment.

    :param counters: totals since the driver was loaded, by name; only their differences mean anything.
    :param gauges: what is measured: `temperature_c`, `power_w`, `memory_bytes`, and `clocks`, a mask of reasons.
    :param missing: names that the card did not answer to.
    """

    counters: Mapping[str, int]
    gauges: Mapping[str, float]
    missing: frozenset[str]


class Counters:
    """A session with NVML, kept open. Several threads may use it.

    :raises BoxError: if NVML does not have these cards any more.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handles = {uuid: pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids}
        except pynvml.NVMLError as error:
            raise BoxError(f"NVML does not give the cards {', '.join(uuids)}: {error}") from error
        self._events: Any = None
        self._by_handle = {_address(handle): uuid for uuid, handle in self._handles.items()}

    def read(self, uuid: str) -> Reading:
        """Ask for everything.

        :raises CardLostError: the driver has lost the card.
        """
        handle = self._handles[uuid]
        try:
            counters = self._fields(handle)
            asked = {name: self._gauge(name, handle) for name in GAUGES}
        except self._nvml.NVMLError_GpuIsLost as error:
            raise CardLostError(f"{uuid}: {error}") from error
        gauges = {name: value for name, value in asked.items() if value is not None}
        missing = {*FIELDS.values(), *GAUGES} - set(counters) - set(gauges)
        return Reading(counters=counters, gauges=gauges, missing=frozenset(missing))

    def watch_xids(self) -> frozenset[str]:
        """Begin to hear of XIDs.

        :returns: the cards whose events can not be had.
        """
        nvml, deaf = self._nvml, set()
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:  # as where the driver is not on this side, such as under WSL
            return frozenset(self._handles)
        for uuid, handle in self._handles.items():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            except nvml.NVMLError:
                deaf.add(uuid)
        return frozenset(deaf)

    def next_xid(self, seconds: float) -> tuple[str, int] | None:
        """The next XID and its card; None if there was none in so many seconds.

        :raises CardLostError: the driver has lost a card of those that are watched, and does not say which.
        :raises BoxError: NVML tells of no event any more.
        """
        nvml = self._nvml
        try:
            event = nvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except nvml.NVMLError_Timeout:
            return None
        except nvml.NVMLError_GpuIsLost as error:
            raise CardLostError(str(error)) from error
        except nvml.NVMLError as error:
            raise BoxError(f"NVML tells of no XID any more: {error}") from error
        uuid = self._by_handle.get(_address(event.device))
        return None if uuid is None else (uuid, int(event.eventData))

    def close(self) -> None:
        """Nothing more is asked. A driver that has lost a card may refuse even that, and keeps no verdict from being told."""
        events, self._events = self._events, None
        with contextlib.suppress(self._nvml.NVMLError):
            if events is not None:
                self._nvml.nvmlEventSetFree(events)
            self._nvml.nvmlShutdown()

    def _fields(self, handle: Any) -> dict[str, int]:
        try:
            values = self._nvml.nvmlDeviceGetFieldValues(handle, list(FIELDS))
        except self._nvml.NVMLError_GpuIsLost:
            raise
        except self._nvml.NVMLError:  # as in `_gauge`
            return {}
        return {
            FIELDS[value.fieldId]: int(getattr(value.value, _VALUES[value.valueType]))
            for value in values
            if value.nvmlReturn == self._nvml.NVML_SUCCESS and value.valueType < len(_VALUES)
        }

    def _gauge(self, name: str, handle: Any) -> float | None:
        nvml = self._nvml
        ask: Mapping[str, Callable[[], float]] = {
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "clocks": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        }
        try:
            return ask[name]()
        except nvml.NVMLError_GpuIsLost:
            raise
        except nvml.NVMLError:  # not supported, not permitted, or not known to this driver: all the same here
            return None


def reasons(mask: int) -> list[str]:
    """Names of what holds the clocks down."""
    return [name for bit, name in REASONS.items() if mask & bit]


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
