"""What is mapped into a process: the shared objects that it really runs on. Reads /proc only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import CudabootError

_SHARED_OBJECT = re.compile(r"\.so(\.[0-9A-Za-z_.-]+)?$")
_DELETED = " (deleted)"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class SharedObject:
    """A library in a process's memory.

    :param deleted: its file was removed or replaced after it was mapped: what runs is not what lies there now.
    """

    name: str
    path: str
    deleted: bool = False


def parse_maps(text: str) -> tuple[SharedObject, ...]:
    """The shared objects in the text of a `/proc/PID/maps`, each path once, sorted by name."""
    # Five fields come before the path, and a path may hold spaces.
    paths = {fields[5] for line in text.splitlines() if len(fields := line.split(maxsplit=5)) == 6}  # noqa: PLR2004
    objects = (_object(path) for path in paths if path.startswith("/"))
    return tuple(sorted(found for found in objects if _SHARED_OBJECT.search(found.name)))


def shared_objects(pid: int | str = "self") -> tuple[SharedObject, ...]:
    """The shared objects mapped by a process now."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError):
        raise CudabootError(f"no process {pid!r}: it has no memory map") from None
    except PermissionError:
        raise CudabootError(f"the memory map of process {pid!r} may not be read by this user") from None
    return parse_maps(text)


def by_name(objects: tuple[SharedObject, ...]) -> dict[str, list[str]]:
    """Name to paths; more than one path means two copies of a library in one process."""
    table: dict[str, list[str]] = {}
    for found in objects:
        table.setdefault(found.name, []).append(found.path)
    return table


def resident_bytes() -> tuple[int, int]:
    """Resident memory of the calling process, now and at its peak, bytes."""
    status = Path("/proc/self/status").read_text()
    now, peak = (re.search(rf"^{key}:\s+(\d+) kB$", status, re.MULTILINE) for key in ("VmRSS", "VmHWM"))
    if now is None or peak is None:
        raise CudabootError("/proc/self/status names no VmRSS and VmHWM")
    return int(now[1]) * 1024, int(peak[1]) * 1024


def _object(path: str) -> SharedObject:
    # The kernel writes a newline in a path as an octal escape; nothing else is escaped.
    real = path.removesuffix(_DELETED).replace("\\012", "\n")
    return SharedObject(name=Path(real).name, path=real, deleted=path.endswith(_DELETED))
