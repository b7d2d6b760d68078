"""Before a run: whether others are on its cards. Few of them are told, and too many are refused."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pytest_cudaboot.errors import LeaseError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml, procfs
from pytest_cudaboot.rules.tenants import no_room, tenants

ENDING = 2.0  # seconds that what was ended just now may take to give its memory back
LOOKS = 0.25


def look_around(gpus: Sequence[Gpu], environ: Mapping[str, str], wait: float = 0.0) -> dict[str, list[str]]:
    """Who is on the cards, by UUID; cards that nobody uses are not named.

    :param wait: seconds that the caller is ready to wait for room.
    :raises LeaseError: if what they hold leaves no room for the reservation of one client.
    """
    deadline = time.monotonic() + max(wait, ENDING)
    found = {gpu.uuid: _room_on(gpu, environ, deadline) for gpu in gpus}
    return {uuid: words for uuid, words in found.items() if words}


def _room_on(gpu: Gpu, environ: Mapping[str, str], deadline: float) -> list[str]:
    while (use := nvml.use_of(gpu.uuid)) is not None:
        names = {pid: state.name for pid in use.processes if (state := procfs.process_state(pid))}
        told = tenants(use.used, use.processes, names)
        why = no_room(use.total, use.used, environ)
        if why is None:
            return told
        if time.monotonic() >= deadline:
            whose = "; ".join(told) or "the driver names nobody"
            raise LeaseError(f"{gpu.uuid} (index {gpu.index}) has no room for this run: {why} ({whose})")
        time.sleep(LOOKS)
    return []
