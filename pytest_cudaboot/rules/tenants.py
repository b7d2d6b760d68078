"""Others on a card that a run was asked to use: who they are, and whether they leave room for it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_cudaboot.rules.reservation import DEFAULT_FRACTION, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

FRACTION = "LEAN_MLIR_MEM_FRACTION"
PREALLOCATE = "LEAN_MLIR_PREALLOCATE"
UNNAMED = 1 << 30  # bytes that nobody is named for; less may be the driver's own
MIB = 1 << 20


def tenants(used: int, processes: Mapping[int, int | None], names: Mapping[int, str]) -> list[str]:
    """Everybody on a card before a run begins, in words.

    :param processes: bytes by process id, as the driver names them.
    :param names: of those processes that can be seen from here.
    """
    told = [_words(pid, size, names.get(pid)) for pid, size in processes.items()]
    rest = used - sum(size or 0 for size in processes.values())
    if not told and rest >= UNNAMED:
        told.append(f"{rest // MIB} MiB are in use by processes that the driver does not name here")
    return told


def no_room(total: int, used: int, environ: Mapping[str, str]) -> str | None:
    """Why a client with this environment's reservation has no room beside what is in use; None if it has."""
    if environ.get(PREALLOCATE) == "0" or not total:
        return None
    try:
        fraction = float(environ.get(FRACTION) or DEFAULT_FRACTION)
    except ValueError:  # the shim refuses it by name, in its own words
        return None
    return refusal(total=total, used=used, fraction=fraction) if 0 < fraction <= 1 else None


def _words(pid: int, size: int | None, name: str | None) -> str:
    who = f"pid {pid} ({name})" if name else f"pid {pid}"
    return (
        f"{who} has {size // MIB} MiB"
        if size is not None
        else f"{who} has memory, the driver does not say how much"
    )
