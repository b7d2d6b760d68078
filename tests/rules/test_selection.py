"""`--gpus` is a contract: it names whole cards that are there and visible, or it is refused in words."""

from __future__ import annotations

import re

import pytest

from pytest_cudaboot.errors import BoxError, SelectionError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.rules.selection import in_force, pin_environment, rebound, select
from tests.rules.builders import A, B, C

CARDS = (A, B, C)


@pytest.mark.parametrize(
    ("wanted", "mask", "chosen"),
    [
        ("none", None, ()),
        ("none", "nonsense", ()),
        ("all", None, (A, B, C)),
        ("auto", None, (A, B, C)),
        ("0", None, (A,)),
        ("2,0", None, (C, A)),
        ("0-2", None, (A, B, C)),
        ("1-1", None, (B,)),
        ("0,1-2", None, (A, B, C)),
        ("GPU-ab22", None, (B,)),
        ("GPU-c", None, (C,)),
        ("GPU-c,0", None, (C, A)),
        ("00000000:41:00.0", None, (B,)),
        ("0000:41:00.0", None, (B,)),
        ("41:00.0", None, (B,)),
        ("0001:01:00.0", None, (C,)),
        ("all", "2,0", (C, A)),
        ("0", "2,0", (C,)),
        ("1", "2,0", (A,)),
        ("0-1", "2,0", (C, A)),
        ("GPU-a", "0,2", (A,)),
        ("all", "GPU-ab22,GPU-c", (B, C)),
        ("all", "0, 1", (A, B)),
        ("all", "0,7,1", (A,)),
        ("all", "0,-1,1", (A,)),
        ("all", "1,GPU-a,0", (B,)),
        ("auto", "1", (B,)),
    ],
)
def test_a_selection_is_read_inside_the_mask(wanted: str, mask: str | None, chosen: tuple[Gpu, ...]) -> None:
    assert select(wanted, CARDS, mask=mask, hardware=True) == chosen


@pytest.mark.parametrize(
    ("wanted", "mask", "chosen"),
    [
        ("all", None, (A, B, C)),
        ("0", None, (A,)),
        ("all", "0", (C,)),
        ("0-1", "2,0", (B, C)),
        ("all", "GPU-ab22,0", (B, C)),
    ],
)
def test_an_index_of_the_mask_counts_in_cudas_order(
    wanted: str, mask: str | None, chosen: tuple[Gpu, ...]
) -> None:
    assert select(wanted, CARDS, mask=mask, hardware=True, order=(C, A, B)) == chosen


def test_auto_is_none_only_where_there_is_no_hardware() -> None:
    assert select("auto", (), mask=None, hardware=False) == ()


@pytest.mark.parametrize("wanted", ["auto", "all", "0"])
def test_hardware_without_an_answer_is_a_box_in_contradiction(wanted: str) -> None:
    with pytest.raises(BoxError, match="the PCI bus has NVIDIA cards, and NVML names none of them"):
        select(wanted, (), mask=None, hardware=True)


OFFER = "this machine offers: 0=GPU-aa11 (H200), 1=GPU-ab22 (H200), 2=GPU-cc33 (L4)"


@pytest.mark.parametrize(
    ("wanted", "mask", "words"),
    [
        ("7", None, f"no GPU '7'; {OFFER}"),
        ("GPU-x", None, f"no GPU 'GPU-x'; {OFFER}"),
        ("02:00.0", None, f"no GPU '02:00.0'; {OFFER}"),
        ("1-3", None, f"no GPU '3'; {OFFER}"),
        ("0-999999999", None, f"no GPU '3'; {OFFER}"),
        ("2-1", None, "--gpus range '2-1' runs backwards; write '1-2'"),
        ("GPU-a", None, f"GPU 'GPU-a' is the start of 2 UUIDs; {OFFER}"),
        ("0,0", None, "--gpus=0,0 names GPU-aa11 twice"),
        ("0,GPU-aa", None, "--gpus=0,GPU-aa names GPU-aa11 twice"),
        ("0-1,1", None, "--gpus=0-1,1 names GPU-ab22 twice"),
        ("GPU-aa11", "1", "GPU 'GPU-aa11' is masked out; CUDA_VISIBLE_DEVICES='1' leaves: 0=GPU-ab22 (H200)"),
        ("01:00.0", "1", "GPU '01:00.0' is masked out; CUDA_VISIBLE_DEVICES='1' leaves:"),
        (
            "2",
            "1,0",
            "no GPU '2' inside the mask (NVML's GPU 2 is masked out); CUDA_VISIBLE_DEVICES='1,0' leaves: 0=GPU-ab22",
        ),
        ("2", "2", "no GPU '2' inside the mask; CUDA_VISIBLE_DEVICES='2' leaves: 0=GPU-cc33"),
        ("9", "1", "no GPU '9' inside the mask; CUDA_VISIBLE_DEVICES='1' leaves:"),
        ("all", "", "--gpus=all finds no GPU; CUDA_VISIBLE_DEVICES='' leaves: none"),
        ("auto", "-1", "--gpus=auto finds no GPU; CUDA_VISIBLE_DEVICES='-1' leaves: none"),
        ("all", "GPU-a", "CUDA_VISIBLE_DEVICES='GPU-a' leaves: none"),
        ("all", "0,0", "CUDA_VISIBLE_DEVICES='0,0' names GPU-aa11 twice"),
        ("all", "MIG-1", "CUDA_VISIBLE_DEVICES='MIG-1' names the MIG instance 'MIG-1'; only whole cards"),
        ("", None, "--gpus is empty; write none, auto, all, or a list of index"),
        ("0,,1", None, "--gpus='0,,1' has an empty entry"),
        ("0,", None, "--gpus='0,' has an empty entry"),
        ("-1", None, "--gpus='-1': '-1' names no GPU; write none, auto"),
        (" 0 ", None, "--gpus=' 0 ': ' 0 ' has blanks around it; write '0'"),
        ("0, 1", None, "' 1' has blanks around it; write '1'"),
        ("none,0", None, "--gpus='none,0': 'none' stands alone, not in a list"),
        ("0,all", None, "'all' stands alone, not in a list"),
        ("ALL", None, "'ALL' names no GPU"),
        ("01", None, "'01' names no GPU"),
        ("+1", None, "'+1' names no GPU"),
        ("\u0661", None, "names no GPU"),
        ("GPU-", None, "'GPU-' names no GPU"),
        ("MIG-3f", None, "--gpus='MIG-3f': 'MIG-3f' is a MIG instance; only whole cards can be gated"),
    ],
)
def test_a_refusal_says_what_there_is(wanted: str, mask: str | None, words: str) -> None:
    with pytest.raises(SelectionError, match=re.escape(words)):
        select(wanted, CARDS, mask=mask, hardware=True)


def test_a_machine_without_cards_offers_none() -> None:
    with pytest.raises(SelectionError, match=r"no GPU '0'; this machine offers: none$"):
        select("0", (), mask=None, hardware=False)


def test_all_without_a_card_is_refused() -> None:
    with pytest.raises(SelectionError, match=r"--gpus=all finds no GPU; this machine offers: none"):
        select("all", (), mask=None, hardware=False)


def test_a_pin_is_a_uuid_in_bus_order() -> None:
    pinned = pin_environment({"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0,1"}, [A])

    assert pinned == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "GPU-aa11", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_process_without_a_card_sees_none() -> None:
    assert pin_environment({}, ())["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    "name",
    [
        "XLA_FLAGS",
        "TF_XLA_FLAGS",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
        "XLA_CLIENT_MEM_FRACTION",
        "LEAN_MLIR_LOWERER",
        "LEAN_MLIR_LOWERER_SO",
        "PJRT_PLUGIN",
        "PJRT_REPLICAS",
        "PJRT_FFI_RESIDENT",
        "CUDABOOT_CPU_DEVICES",
    ],
)
def test_what_changes_the_program_behind_a_spec_is_dropped(name: str) -> None:
    assert name not in pin_environment({name: "1"}, [A])
    assert in_force({name: "1"}) == {name: "dropped: 1"}


@pytest.mark.parametrize("name", ["LEAN_MLIR_MEM_FRACTION", "LEAN_MLIR_PREALLOCATE", "LD_LIBRARY_PATH"])
def test_the_users_memory_and_libraries_are_kept_and_told(name: str) -> None:
    assert pin_environment({name: "1"}, [A])[name] == "1"
    assert in_force({name: "1"}) == {name: "kept: 1"}


@pytest.mark.parametrize("environ", [{"HOME": "/h", "PATH": "/bin"}, {"XLA_FLAGS": ""}, {}])
def test_what_has_no_bearing_is_not_told(environ: dict[str, str]) -> None:
    assert in_force(environ) == {}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            "CUDA_VISIBLE_DEVICES=0 ./t data", {"CUDA_VISIBLE_DEVICES": A.uuid}, id="the literal index"
        ),
        pytest.param(
            "CUDA_VISIBLE_DEVICES=0,1 ./t data", {"CUDA_VISIBLE_DEVICES": A.uuid}, id="a list of them"
        ),
        pytest.param(
            "CUDA_VISIBLE_DEVICES=GPU-x ./t data", {"CUDA_VISIBLE_DEVICES": "GPU-x"}, id="a UUID stays"
        ),
        pytest.param("X=1 Y= ./t data", {"X": "1", "Y": ""}, id="other variables"),
        pytest.param("./t data", {}, id="no variable"),
    ],
)
def test_a_documented_command_is_rebound_to_the_workers_card(words: str, expected: dict[str, str]) -> None:
    assert rebound(words.split(), [A]) == (expected, ("./t", "data"))


def test_an_assignment_behind_the_command_is_its_argument() -> None:
    assert rebound(["./t", "CUDA_VISIBLE_DEVICES=0"], [A]) == ({}, ("./t", "CUDA_VISIBLE_DEVICES=0"))


def test_without_a_card_the_literal_index_is_no_card() -> None:
    assert rebound(["CUDA_VISIBLE_DEVICES=0", "./t"], ()) == ({"CUDA_VISIBLE_DEVICES": ""}, ("./t",))


def test_a_gang_is_pinned_to_its_cards_in_order() -> None:
    assert pin_environment({}, [B, A])["CUDA_VISIBLE_DEVICES"] == f"{B.uuid},{A.uuid}"


@pytest.mark.parametrize(("mask", "cards"), [("0", [B]), ("0,1", [B, A]), ("0,1,2,3", [B, A])])
def test_as_many_indices_mean_as_many_of_a_gangs_cards(mask: str, cards: list[Gpu]) -> None:
    pairs, _ = rebound([f"CUDA_VISIBLE_DEVICES={mask}", "./t"], [B, A])

    assert pairs["CUDA_VISIBLE_DEVICES"] == ",".join(card.uuid for card in cards)
