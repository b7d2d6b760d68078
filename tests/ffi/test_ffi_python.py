"""Python's words for what stays on the device, over the real shim and a real plugin, in a process of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.ffi.helpers import ROOT, run

SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
from pytest_cudaboot.lowerers.base import LowererConfig, make_lowerer
from pytest_cudaboot.lowerers.xla import HOLD, SEND, Loop

lowerer = make_lowerer(LowererConfig(name="xla", platform="cpu", shim=sys.argv[1]))
x, w, m = (np.linspace(a, a + 1, 4, dtype=np.float32) for a in (0.0, 0.5, -1.0))
batches = [x + step for step in range(4)]
rate = np.array(0.25, np.float32)

def opened():
    return lowerer.open_session(Path(sys.argv[2]))

copying, state, plain = opened(), [w, m], []
for batch in batches:
    *state, loss = copying.invoke("drift", [batch, *state, rate])
    plain.append(float(loss))
resident = opened()
nothing = resident.resident_read(8)
kept = [float(resident.invoke_resident("drift", [b, w, m, rate], (1, 0, 2))[2]) for b in batches]
loop = Loop(roles=[SEND, 0, 1, HOLD], in_flight=1, late=True)
looped, late = opened(), []
for step, batch in enumerate(batches):
    made = looped.step("drift", [batch, w, m, rate], loop, on_device=(1, 2, 3) if step else (), read=[2])
    late.append(float(made[2]))
late = [*late[1:], float(looped.flush([2])[2])]
want = np.concatenate(state)
print(json.dumps({
    "nothing": nothing is None,
    "losses": [plain, kept, late],
    "state": [bool((s.resident_read(8) == want).all()) for s in (resident, looped)],
}))
"""


def test_three_ways_to_train_are_one(shim: Path, drifts: Path, cpu_plugin: Path) -> None:
    settings = {"PJRT_PLUGIN": str(cpu_plugin), "PYTHONPATH": str(ROOT)}

    done = run(sys.executable, "-c", SCRIPT, shim, drifts / "drift.mlir", cwd=ROOT, env=settings)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    plain, kept, late = told["losses"]
    assert plain == kept == late
    assert len(set(plain)) == len(plain)
    assert (told["state"], told["nothing"]) == ([True, True], True)
