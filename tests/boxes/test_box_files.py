"""The stand-ins themselves: files, recorder, and a libcuda that masks and orders as the driver does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.boxes import replay
from fixtures.boxes.record import anonymous
from fixtures.boxes.replay import Box
from tests.boxes.box import BOXES, PLUGIN, BoxGate
from tests.run.gate import ROOT

FILES = sorted(BOXES.glob("*.box"))
# The stand-in reads its variables once a process, so that each question is asked by a process of its own.
SEE = """
import json, os, sys
from pytest_cudaboot.device.cuda import visible_devices
from pytest_cudaboot.errors import BoxError
for variables in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    os.environ.update(variables)
    try:
        print(json.dumps([device.name for device in visible_devices()]), flush=True)
    except BoxError as error:
        print(json.dumps(str(error)), flush=True)
    os._exit(0)
"""
RTX, H100, ADA = "NVIDIA GeForce RTX 4060 Ti", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"


def python(gate: BoxGate, *words: str) -> str:
    """What a Python on the box prints."""
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=gate.env, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return done.stdout


def seen(gate: BoxGate, *variables: dict[str, str]) -> list[object]:
    """Names of the cards that CUDA shows to a process with these variables, or why it shows none."""
    return [json.loads(line) for line in python(gate, "-c", SEE, json.dumps(variables)).splitlines()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_written_as_it_was_read_and_says_where_it_is_from(path: Path) -> None:
    comment, _, rest = path.read_text().partition("\n")

    assert replay.read(path).text() == rest
    assert comment.startswith("# Invented: " if path.stem.startswith("invented-") else "# Recorded: ")


@pytest.mark.parametrize("name", ["one-h200", "invented-mixed", "invented-mig"])
def test_a_recording_of_a_replay_is_the_box(gate: BoxGate, name: str) -> None:
    gate.on(name)
    words = "import sys, pathlib; from fixtures.boxes import record; print(end=record.record(pathlib.Path(sys.argv[1])).text())"

    assert python(gate, "-c", words, str(gate.root)) == gate.box.text()


def test_what_is_recorded_has_uuids_of_nobody_and_the_same_ones_each_time() -> None:
    box = replay.read(BOXES / "two-h200.box")
    (first, second), (again, _) = anonymous(box).cards, anonymous(box).cards

    assert first == again
    assert len({first.uuid, second.uuid, *(card.uuid for card in box.cards)}) == 4
    assert all(
        re.fullmatch("GPU-" + "-".join(rf"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)), c.uuid)
        for c in (first, second)
    )
    assert [replace(card, uuid="") for card in (first, second)] == [
        replace(card, uuid="") for card in box.cards
    ]


def test_a_box_is_laid_out_from_the_command_line(tmp_path: Path) -> None:
    words = [ROOT / "fixtures/boxes/replay.py", BOXES / "invented-mixed.box", tmp_path / "box"]
    told = subprocess.check_output([sys.executable, *words], text=True)

    variables = dict(line.split("=", 1) for line in told.splitlines())
    assert variables.keys() == {"CUDABOOT_BOX", "CUDABOOT_BOX_ROOT", "LD_LIBRARY_PATH"}
    assert all(Path(value).exists() for value in variables.values())
    assert (Path(variables["LD_LIBRARY_PATH"]) / "libcuda.so.1").exists()


@pytest.mark.parametrize("line", ["speed 3", "card GPU-1\n  colour green", "mig"])
def test_a_line_without_a_place_is_refused_by_python_and_c(gate: BoxGate, line: str) -> None:
    gate.on("invented-bare")
    path = Path(gate.env["CUDABOOT_BOX"])
    path.write_text(f"# a comment\n\n{line}\n")
    *_, wrong = lines = line.splitlines()
    last = 2 + len(lines)

    with pytest.raises(ValueError, match=rf"box:{last}: no place for '{wrong.strip()}'"):
        replay.read(path)
    (answer,) = gate.ask(("all", None))
    assert answer.startswith(f"environment: NVML fails: {path}:{last}: no place for '")


MASKS: list[tuple[str, list[str]]] = [
    ("0", [H100]),
    ("2,0", [RTX, H100]),
    ("GPU-55555", [ADA]),
    ("GPU-4,GPU-9", [RTX, H100]),
    (" 1 , 0", [ADA, H100]),
    ("1,7,0", [ADA]),
    ("1,,0", [ADA]),
    ("0,-1,1", [H100]),
    ("GPU-,0", []),
    ("0,0", []),
    ("", []),
    ("gpu-5", []),
    ("MIG-1", []),
]


def test_a_mask_is_read_as_the_driver_reads_it(gate: BoxGate) -> None:
    gate.on("invented-mixed")

    assert seen(gate, *({"CUDA_VISIBLE_DEVICES": mask} for mask, _ in MASKS)) == [names for _, names in MASKS]


def test_the_order_is_the_fastest_first_unless_it_is_the_buss(gate: BoxGate) -> None:
    gate.on("invented-mixed")

    assert seen(
        gate,
        {},
        {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0"},
    ) == [[H100, ADA, RTX], [H100, ADA, RTX], [RTX, H100, ADA], [ADA, RTX]]


def test_cards_that_nvml_can_not_show_are_not_there_for_cuda(gate: BoxGate) -> None:
    gate.on("invented-container")

    assert seen(gate, {}, {"CUDA_VISIBLE_DEVICES": "1"}) == [[H100], []]


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("unloaded", []),
        ("absent", []),
        ("mismatch", "cuInit failed with 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"),
    ],
)
def test_a_driver_in_trouble_shows_nothing(gate: BoxGate, state: str, answer: object) -> None:
    box = replace(replay.read(BOXES / "invented-mixed.box"), state=state)

    assert seen(gate.on(box), {}) == [answer]


@pytest.mark.parametrize("nvml", [None, PLUGIN], ids=["without-nvml", "beside-a-drivers"])
def test_a_simulated_driver_alone_proves_nothing(gate: BoxGate, nvml: str | None) -> None:
    gate.on("one-h200", LD_LIBRARY_PATH=str(gate.path))
    (gate.path / "libcuda.so.1").symlink_to(gate.libraries / "libcuda.so.1")
    if nvml is not None:
        (gate.path / "libnvidia-ml.so.1").symlink_to(gate.libraries / nvml)
    code = "from pytest_cudaboot.device.cuda import Driver; Driver()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=gate.env, capture_output=True, text=True, check=False
    )

    assert done.stderr.startswith("simulated libcuda: NVML is no simulation\n")
    assert "BoxError: cuInit failed with 999 (CUDA_ERROR_UNKNOWN)" in done.stderr


def test_what_a_process_could_touch_is_written_down(gate: BoxGate) -> None:
    gate.on("invented-mixed")
    seen(gate, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": ""})

    assert gate.touched == [(gate.uuid(2),), ()]


def test_a_card_that_left_the_bus_before_the_driver_came_has_no_files_of_the_drivers(gate: BoxGate) -> None:
    gate.on("invented-lost")

    made = sorted(path.name for path in (gate.root / "dev").iterdir())
    assert made == ["nvidia0", "nvidia1", "nvidia3"]
    assert len(list((gate.root / "sys/bus/pci/devices").iterdir())) == 4


def test_a_plain_box_has_nothing(tmp_path: Path) -> None:
    assert replay.lay_out(Box(), tmp_path, tmp_path)["CUDABOOT_BOX_ROOT"] == str(tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []
