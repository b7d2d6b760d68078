"""Nothing survives the death of a worker, whatever it was doing when it was killed."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

import pytest_cudaboot
from pytest_cudaboot.probes.process import run_command, start_process

ROOT = str(Path(pytest_cudaboot.__file__).parents[1])
HERE = str(Path(__file__).parent)
SECONDS = 10.0

WORKER = """
import os, sys
from pathlib import Path
from pytest_cudaboot.device.client import DeviceProcess
device = DeviceProcess(env=dict(os.environ), log_path=Path(sys.argv[1]), target="service_under_test:Service")
print(device.pid, flush=True)
device.call(sys.argv[2], budget=300)
"""


@pytest.mark.parametrize("verb", ["hang", "modules"])
def test_a_device_process_ends_with_a_killed_worker(tmp_path: Path, verb: str) -> None:
    """Both while it waits for a call and while a C function in it holds the interpreter's lock."""
    source = WORKER if verb == "hang" else WORKER + "import time; time.sleep(300)\n"
    reader, writer = os.pipe()
    with os.fdopen(reader) as output, os.fdopen(writer, "wb") as into:
        worker = start_process(
            [sys.executable, "-c", source, str(tmp_path / "device.log"), verb],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"},
            stdout=into,
        )
        into.close()
        device = os.pidfd_open(int(output.readline()))
    try:
        assert not ended(device, 0)
        worker.kill()

        assert ended(device, SECONDS)
    finally:
        os.close(device)


def test_a_device_process_refuses_another_parent(tmp_path: Path) -> None:
    """Its parent may have died before the kernel was asked to tell."""
    words = [sys.executable, "-m", "pytest_cudaboot.device.server", "0", "0", "1", "nothing:Nothing"]
    env = {**os.environ, "PYTHONPATH": ROOT}
    done = run_command(words, cwd=tmp_path, env=env, budget=SECONDS, check=False)

    assert (done.returncode, done.stderr) == (1, "")


def ended(pidfd: int, seconds: float) -> bool:
    return bool(select.select([pidfd], [], [], seconds)[0])
