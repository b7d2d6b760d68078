"""`cudaboot doctor` as a user calls it, on simulated boxes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from pytest_cudaboot.probes.lease import acquire
from tests.boxes.box import BoxGate

MAIN = "import sys; from pytest_cudaboot.cli import main; sys.exit(main(sys.argv[1:]))"
Json = dict[str, Any]


def asked(gate: BoxGate, *words: str) -> tuple[int, dict[str, Json]]:
    """Exit status, and the lines by what they are about; of several, the last."""
    argv = [sys.executable, "-c", MAIN, "doctor", "--json", *words]
    done = subprocess.run(argv, cwd=gate.path, env=gate.env, capture_output=True, text=True, check=False)
    assert not done.stderr
    data = json.loads(done.stdout)
    assert (data["schema"], data["ready"]) == ("cudaboot-doctor/1", done.returncode == 0)
    return done.returncode, {line["what"]: line for line in data["lines"]}


def test_eight_cards_behind_a_mask_and_one_of_them_leased(gate: BoxGate) -> None:
    gate.on("invented-eight", CUDA_VISIBLE_DEVICES="1,2")
    with acquire([gate.uuid(2)], folder=gate.path / "leases"):
        status, lines = asked(gate)

    assert (status, lines["leases"]["state"], lines["leases"]["needed"]) == (1, "held", True)
    assert len(lines["cards"]["detail"].splitlines()) == 3
    assert lines["cards"]["detail"].endswith("6 more behind CUDA_VISIBLE_DEVICES='1,2'")
    assert lines["bus"]["state"] == "found"
    assert not gate.touched, "a doctor makes no context"


def test_an_index_of_the_mask_that_only_cuda_can_read(gate: BoxGate) -> None:
    lines = asked(gate.on("invented-mixed", CUDA_VISIBLE_DEVICES="0"))[1]
    assert lines["cards"]["detail"].splitlines()[-1] == (
        "which of them CUDA_VISIBLE_DEVICES='0' means only CUDA knows, "
        "for it numbers cards of several kinds its own way"
    )

    gate.env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    assert asked(gate)[1]["cards"]["detail"].endswith("2 more behind CUDA_VISIBLE_DEVICES='0'")
    assert not gate.touched


@pytest.mark.parametrize(
    ("box", "what", "state", "words"),
    [
        ("invented-bare", "cards", "missing", "`auto` runs on the CPU"),
        ("invented-lost", "bus", "wrong", "NVML does not name 0000:41:00.0, which the PCI bus has"),
        ("invented-no-nvml", "driver", "missing", "NVML: NVML Shared Library Not Found"),
        ("invented-container", "bus", "found", "1 on the PCI bus, and NVML names each"),
    ],
)
def test_each_box_is_told_as_it_is(gate: BoxGate, box: str, what: str, state: str, words: str) -> None:
    lines = asked(gate.on(box))[1]

    assert lines[what]["state"] == state
    assert words in lines[what]["detail"]


def test_a_project_that_is_not_there(gate: BoxGate) -> None:
    argv = [sys.executable, "-c", MAIN, "doctor", "--project", "gone"]
    done = subprocess.run(argv, cwd=gate.path, env=gate.env, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (4, "cudaboot: --project 'gone' is not a folder\n")
