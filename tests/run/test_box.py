"""Which cards a run gets: NVML against the bus, inside a mask."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.errors import BoxError, SelectionError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes.nvml import NvmlView
from pytest_cudaboot.run.box import Box, choose
from tests.run.gate import Gate
from tests.run.trees import NVIDIA, VGA, Tree

A = Gpu(index=0, uuid="GPU-a", name="H200", capability=(9, 0), memory=150, pci="00000000:01:00.0")
B = Gpu(index=1, uuid="GPU-b", name="L4", capability=(8, 9), memory=24, pci="00000000:02:00.0")
VIEW = NvmlView(gpus=(A, B), driver="580.65", cuda=13000)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def nvml_says(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    says(monkeypatch, VIEW)
    return monkeypatch


def says(monkeypatch: pytest.MonkeyPatch, view: NvmlView) -> None:
    monkeypatch.setattr("pytest_cudaboot.probes.nvml.look", lambda: view)


def two_cards(tree: Tree) -> Path:
    tree.card("0000:01:00.0", 0)
    tree.card("0000:02:00.0", 1)
    return tree.root


def chosen(wanted: str, root: Path, **environ: str) -> Box:
    # Two kinds of cards, whose order CUDA would have to be asked for.
    return choose(wanted, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **environ}, root)


@pytest.mark.usefixtures("nvml_says")
def test_all_cards_with_their_facts(tree: Tree) -> None:
    box = chosen("all", two_cards(tree))

    assert (box.gpus, box.cuda, box.problem) == ((A, B), 13000, None)
    assert box.facts == {
        "driver": "580.65",
        "cuda": 13000,
        "cards": ["0=GPU-a H200 00000000:01:00.0", "1=GPU-b L4 00000000:02:00.0"],
        "bus": ["0000:01:00.0", "0000:02:00.0"],
        "container": False,
    }


@pytest.mark.usefixtures("nvml_says")
@pytest.mark.parametrize("wanted", ["0", "all", "auto", "GPU-b", "02:00.0"])
def test_an_outer_mask_counts(tree: Tree, wanted: str) -> None:
    assert chosen(wanted, two_cards(tree), CUDA_VISIBLE_DEVICES="1").gpus == (B,)


@pytest.mark.usefixtures("nvml_says")
def test_what_is_masked_out_can_not_be_had(tree: Tree) -> None:
    with pytest.raises(
        SelectionError, match=r"'GPU-a' is masked out; CUDA_VISIBLE_DEVICES='1' leaves: 0=GPU-b"
    ):
        chosen("GPU-a", two_cards(tree), CUDA_VISIBLE_DEVICES="1")


def test_a_card_in_mig_mode_is_refused_unless_it_is_another_one(
    tree: Tree, nvml_says: pytest.MonkeyPatch
) -> None:
    says(nvml_says, NvmlView(gpus=(A, B), mig=("GPU-a",)))
    root = two_cards(tree)

    assert chosen("1", root).gpus == (B,)
    with pytest.raises(SelectionError, match="GPU-a is in MIG mode; only whole cards can be gated"):
        chosen("all", root)


@pytest.mark.usefixtures("nvml_says")
def test_a_card_on_the_bus_that_nvml_does_not_name(tree: Tree) -> None:
    two_cards(tree)
    tree.device("0000:03:00.0", NVIDIA, VGA)

    problem = chosen("0", tree.root).problem
    assert problem == "NVML does not name 1 NVIDIA card(s) that the PCI bus has: 0000:03:00.0"


def test_cards_that_nvml_counts_and_denies_are_somebody_elses(
    tree: Tree, nvml_says: pytest.MonkeyPatch
) -> None:
    """A control group limits devices without the mark of a container; the bus still shows all of them."""
    root = two_cards(tree)
    says(nvml_says, NvmlView(gpus=(A,), denied=1))
    assert (chosen("all", root).gpus, chosen("all", root).problem) == ((A,), None)

    tree.device("0000:03:00.0", NVIDIA, VGA)
    problem = chosen("all", root).problem
    assert problem == "NVML does not name 2 NVIDIA card(s) that the PCI bus has: 0000:02:00.0, 0000:03:00.0"


def test_hardware_without_a_driver_is_never_no_card(tree: Tree, nvml_says: pytest.MonkeyPatch) -> None:
    says(nvml_says, NvmlView(absence="Driver Not Loaded"))

    box = chosen("auto", two_cards(tree))
    assert box.gpus == ()
    assert box.problem is not None
    assert box.problem.endswith("0000:01:00.0, 0000:02:00.0; NVML says: Driver Not Loaded")


def test_a_driver_that_fails(tree: Tree, nvml_says: pytest.MonkeyPatch) -> None:
    def fail() -> NvmlView:
        raise BoxError("NVML fails: GPU is lost")

    nvml_says.setattr("pytest_cudaboot.probes.nvml.look", fail)

    assert chosen("all", two_cards(tree)).problem == "NVML fails: GPU is lost"


def test_none_asks_nobody(tree: Tree, nvml_says: pytest.MonkeyPatch) -> None:
    nvml_says.setattr("pytest_cudaboot.probes.nvml.look", lambda: 1 / 0)

    assert chosen("none", two_cards(tree)) == Box(facts={"cards": "not asked for"})


@pytest.mark.parametrize("words", [("-n", "0"), ()], ids=["here", "workers"])
def test_a_box_in_contradiction_runs_nothing(
    gate: Gate, nvml_says: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    nvml_says.setattr("pytest_cudaboot.probes.pci.cards", lambda _: ())
    nvml_says.setattr("pytest_cudaboot.run.box._agree", disagree)
    gate.suite("def test_ran(): open('ran', 'w')").old_accept()
    result = gate.pytester.runpytest_inprocess("--gpus", "all", *words, ".")

    assert result.ret == gate.verdict["exit"] == 13
    assert gate.verdict["verdict"] == "environment"
    assert gate.verdict["reasons"][0] == "the bus says otherwise"
    assert not (gate.path / "ran").exists()


def disagree(*_: object) -> None:
    raise BoxError("the bus says otherwise")
