"""Whole runs on boxes: the right cards, each cell on its own, or an end in words before anything ran."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.boxes import replay
from tests.boxes.box import BOXES, PLUGIN, REPLAYED, BoxGate, steps

PROVED = """
import os, pytest
from pytest_cudaboot.device.cuda import visible_devices

def seen():
    return [device.uuid for device in visible_devices()]

@pytest.mark.spec("a.real")
def test_real(lowerer, gpu):
    assert lowerer.call("prove") == [gpu.uuid] == seen() == [os.environ["CUDA_VISIBLE_DEVICES"]]

@pytest.mark.spec("a.host")
def test_host(measure):
    measure(seen=seen())
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and not seen()
"""
CATALOG = steps(real="each xla", host="host")
CHEAP = """
import pytest
@pytest.mark.spec("a.cheap")
def test_cheap(gpu, measure): measure(card=gpu.uuid)
"""
CHEAP_CATALOG = steps(cheap="each")
UNNAMED = "NVML does not name 1 NVIDIA card(s) that the PCI bus has"


def test_mixed_cards_each_on_its_own_whatever_order_cuda_has(gate: BoxGate) -> None:
    gate.on("invented-mixed").suite(PROVED, CATALOG)
    done = gate.ran(gpus="0,1")

    assert gate.cards_of("a.real") == {gate.uuid(0): "holds", gate.uuid(1): "holds"}
    assert gate.outcomes["a.host"] == "holds"
    asked, *used = gate.touched
    assert list(asked) == [gate.uuid(1), gate.uuid(2), gate.uuid(0)]
    assert {card for cards in used for card in cards} == set(gate.uuids[:2])
    numbers = ", ".join(f"{place}={uuid}" for place, uuid in enumerate(asked))
    assert f"cudaboot: CUDA numbers them otherwise: {numbers}\n" in done.stdout
    for index, (card, name) in enumerate(
        zip(gate.uuids, ("RTX 4060 Ti at 00000000:01", "H100"), strict=False)
    ):
        assert f"cudaboot: card {index} = {card} NVIDIA" in done.stdout
        assert name in done.stdout


def test_cards_of_several_kinds_and_a_cuda_that_does_not_answer(gate: BoxGate) -> None:
    gate.on("invented-mixed").suite(CHEAP, CHEAP_CATALOG).old_accept()
    (gate.path / "bad").mkdir()
    for library in replay.LIBRARIES:
        there = gate.libraries / (PLUGIN if library == "libcuda.so.1" else library)
        (gate.path / "bad" / library).symlink_to(there)
    gate.env["LD_LIBRARY_PATH"] = str(gate.path / "bad")

    words = gate.contradicted(gpus="0")
    assert words.startswith("CUDA does not tell how it numbers the cards: libcuda.so.1 lacks cuInit")
    assert gate.ask(("1", f"GPU-5,{gate.uuid(1)}")) == [[gate.uuid(1)]]
    gate.env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    assert gate.ask(("0", "1,0")) == [[gate.uuid(1)]]


def test_a_simulated_box_is_never_accepted(gate: BoxGate) -> None:
    on_the_card = PROVED.partition('@pytest.mark.spec("a.host")')[0]
    gate.on("one-h200").suite(on_the_card, steps(real="each xla"))
    done = gate.ran("-n", "0", gpus="all")

    assert gate.cards_of("a.real") == {"GPU-d8c01c47-d7a9-41ef-9a07-e6702eac6c08": "holds"}
    assert (done.returncode, gate.verdict["verdict"], gate.verdict["simulated"]) == (12, "incomplete", True)
    assert gate.verdict["reasons"] == [REPLAYED]
    assert "incomplete · reference · 1 spec holds · simulated box" in done.stdout


@pytest.mark.parametrize("library", [None, "libnvidia-ml.so.1"], ids=["no-driver", "a-driver"])
def test_variables_alone_simulate_nothing(gate: BoxGate, library: str | None) -> None:
    gate.on("one-h200", LD_LIBRARY_PATH=str(gate.path))
    if library is not None:
        (gate.path / library).symlink_to(gate.libraries / PLUGIN)  # like a driver's, it has no such symbol
    code = "from pytest_cudaboot.probes import nvml; print(nvml.simulated_root())"
    told = subprocess.check_output([sys.executable, "-c", code], env=gate.env, cwd=gate.path, text=True)

    assert told == "None\n"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"CUDABOOT_BOX_ROOT": ""},
            "libnvidia-ml.so.1 is a simulation, and CUDABOOT_BOX_ROOT names no folder",
        ),
        ({"CUDABOOT_BOX": "no.box"}, "NVML fails: CUDABOOT_BOX names no file that can be read: no.box"),
    ],
)
def test_stand_ins_without_a_box_are_no_machine(gate: BoxGate, variables: dict[str, str], words: str) -> None:
    gate.on("one-h200", **variables).suite(CHEAP, CHEAP_CATALOG)

    assert gate.contradicted(gpus="all").startswith(words)


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ("invented-lost", f"{UNNAMED}: 0000:41:00.0"),
        (
            "invented-no-nvml",
            f"{UNNAMED}: 0000:01:00.0; NVML says: NVML Shared Library Not Found",
        ),
    ],
)
def test_hardware_that_nvml_does_not_name_is_never_no_card(gate: BoxGate, box: str, words: str) -> None:
    gate.on(box).suite(CHEAP, CHEAP_CATALOG).old_accept()

    assert gate.contradicted(gpus="auto") == words
    assert gate.ask(("0", None), ("all", None), ("auto", ""), ("3", "0")) == [f"environment: {words}"] * 4
    assert gate.touched == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"state": "mismatch"}, "NVML fails: RM has detected an NVML/RM version mismatch."),
        (
            {"state": "unloaded"},
            f"{UNNAMED}: 0000:00:06.0; NVML says: Driver Not Loaded",
        ),
        ({"nvml": "lost"}, "NVML fails: GPU is lost"),
    ],
)
def test_a_driver_in_trouble(gate: BoxGate, fault: dict[str, str], words: str) -> None:
    box = replace(replay.read(BOXES / "one-h200.box"), marks=())
    box = box.with_card(0, **fault) if "nvml" in fault else replace(box, state=fault["state"])
    gate.on(box).suite(CHEAP, CHEAP_CATALOG).old_accept()

    assert gate.contradicted(gpus="0").startswith(words)


def test_a_machine_without_hardware_has_no_card_to_give(gate: BoxGate) -> None:
    gate.on("invented-bare").suite(CHEAP, CHEAP_CATALOG).old_accept()

    assert "no GPU '0'; this machine offers: none (NVML says: NVML Shared Library" in gate.refused(gpus="0")
    assert "--gpus=all finds no GPU; this machine offers: none" in gate.refused(gpus="all")


def test_auto_runs_without_cards_where_there_is_no_hardware(gate: BoxGate) -> None:
    gate.on("invented-bare").suite(PROVED, CATALOG)
    done = gate.ran("-n", "0", "-k", "host", gpus="auto")

    assert gate.outcomes["a.host"] == "holds"
    assert gate.cells["a.real"]["platform"] == "cpu"
    assert "cudaboot: cards none (host scope, on the CPU)" in done.stdout


def test_a_container_runs_on_its_one_card(gate: BoxGate) -> None:
    gate.on("invented-container").suite(PROVED, CATALOG).ran("-n", "0", "-k", "real", gpus="all")

    assert gate.cards_of("a.real") == {gate.uuid(3): "holds"}
    assert {card for cards in gate.touched for card in cards} == {gate.uuid(3)}


def test_mig_is_refused_before_anything_runs(gate: BoxGate) -> None:
    gate.on("invented-mig").suite(CHEAP, CHEAP_CATALOG).old_accept()

    assert f"{gate.uuid(0)} is in MIG mode; only whole cards can be gated" in gate.refused(gpus="0")
    assert "is a MIG instance; only whole cards can be gated" in gate.refused(gpus="MIG-1234")


def test_a_wrong_name_ends_before_anything_runs(gate: BoxGate) -> None:
    """All that can be wrong with a name is asked for in `test_box_selection.py`, where a question costs no run."""
    gate.on("invented-eight").suite(CHEAP, CHEAP_CATALOG).old_accept()

    words = "names GPU-88888000-0000-4000-8000-000000000000 twice"
    assert words in gate.refused(gpus="0,19:00.0")


def test_a_masked_card_is_refused_and_not_touched(gate: BoxGate) -> None:
    gate.on("invented-eight", CUDA_VISIBLE_DEVICES="6,2").suite(CHEAP, CHEAP_CATALOG).old_accept()

    words = "no GPU '3' inside the mask (NVML's GPU 3 is masked out); CUDA_VISIBLE_DEVICES='6,2' leaves: 0=GPU-88888006"
    assert words in gate.refused(gpus="3")


def test_a_pin_that_does_not_hold_is_a_broken_environment(gate: BoxGate) -> None:
    box = replay.read(BOXES / "invented-eight.box")
    other = box.cards[0].uuid
    gate.on(box.with_card(4, answers=other)).suite(PROVED, CATALOG)

    words = gate.contradicted("-n", "0", gpus="4")
    assert f"sees ['{other}'], but was pinned to ['{gate.uuid(4)}']" in words


CRASHING = """
import os, pytest
from pytest_cudaboot.device.cuda import visible_devices

@pytest.mark.spec("a.crash")
def test_crash(gpu, measure):
    measure(pid=os.getpid())
    if gpu.index == 2:
        os._exit(1)

@pytest.mark.spec("a.after")
def test_after(gpu, lowerer, measure):
    measure(pid=os.getpid())
    seen = [device.uuid for device in visible_devices()]
    assert lowerer.call("prove") == [gpu.uuid] == seen == [os.environ["CUDA_VISIBLE_DEVICES"]]
"""


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> BoxGate:
    """A run inside an outer mask, in which the worker of one of its two cards crashes."""
    gate = BoxGate(tmp_path_factory.mktemp("masked"), libraries)
    gate.on("invented-eight", CUDA_VISIBLE_DEVICES="6,GPU-88888002")
    gate.suite(CRASHING, steps(crash="each", after="each xla")).ran(gpus="1,0")
    return gate


def test_inside_an_outer_mask_its_cards_alone_are_used(masked: BoxGate) -> None:
    assert masked.cards_of("a.after") == {masked.uuid(2): "holds", masked.uuid(6): "holds"}
    assert {card for cards in masked.touched for card in cards} == {masked.uuid(2), masked.uuid(6)}


def test_the_replacement_of_a_crashed_worker_has_its_card(masked: BoxGate) -> None:
    crashed, spared = masked.uuid(2), masked.uuid(6)
    workers = {(record["spec"], record["gpu"]): record["worker"] for record in masked.records("result")}

    assert masked.cards_of("a.crash") == {crashed: "broken", spared: "holds"}
    assert masked.cards_of("a.after") == {crashed: "holds", spared: "holds"}
    assert workers["a.crash", crashed] != workers["a.after", crashed]
    assert workers["a.crash", spared] == workers["a.after", spared]
    # Of each card, the device process and the worker that looks for itself.
    assert sorted(masked.touched) == [(crashed,), (crashed,), (spared,), (spared,)]


UNPROTECTED = (
    "tests run in this process: a crash of one ends the run, and a hang in its own code is not ended"
)


@pytest.mark.parametrize("words", [("-n", "0"), ("-p", "no:xdist"), ("--pdb",)], ids=" ".join)
def test_without_workers_one_card_is_used_in_this_process_and_the_header_says_what_is_off(
    gate: BoxGate, words: tuple[str, ...]
) -> None:
    done = gate.on("one-h200").suite(CHEAP, steps(cheap="each")).ran(*words, gpus="0")

    assert UNPROTECTED in done.stdout
    assert gate.cards_of("a.cheap") == {gate.uuid(0): "holds"}
    assert {record["worker"] for record in gate.records("result")} == {None}
