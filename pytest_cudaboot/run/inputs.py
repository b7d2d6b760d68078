"""The arrays that a test last gave to its device are kept where it fails, if they are few."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_cudaboot.run.evidence import Evidence

MOST = 4 << 20  # bytes


def keep_inputs(evidence: Evidence, folder: Path, worker: str) -> None:
    """Write them down, and say so in the evidence; a folder that takes nothing gets nothing."""
    arrays, evidence.arrays = evidence.arrays, ()
    if not arrays or sum(array.nbytes for array in arrays) > MOST:
        return
    import numpy as np  # whoever has arrays has it

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", (evidence.nodeid or "").rpartition("::")[2])
    path = folder / f"inputs-{worker}-{name}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, *arrays)
    except OSError as error:
        evidence.note(inputs_lost=str(error))
    else:
        evidence.note(inputs=str(path))
