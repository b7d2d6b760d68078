"""What `--gpus` means on a box, with and without an outer mask: the real `pynvml` tells what there is."""

from __future__ import annotations

from tests.boxes.box import BoxGate


def test_every_way_to_name_cards(gate: BoxGate) -> None:
    gate.on("invented-eight")
    of = gate.uuids

    assert gate.ask(
        ("all", None),
        ("auto", None),
        ("5", None),
        ("6,1", None),
        ("2-4,0", None),
        (of[7], None),
        ("GPU-88888003", None),
        ("00000000:4C:00.0", None),
        ("0000:9b:00.0", None),
        ("DB:00.0,GPU-88888000,3", None),
        ("none", None),
    ) == [
        of,
        of,
        [of[5]],
        [of[6], of[1]],
        [of[2], of[3], of[4], of[0]],
        [of[7]],
        [of[3]],
        [of[2]],
        [of[4]],
        [of[7], of[0], of[3]],
        [],
    ]


def test_an_index_is_a_position_in_the_outer_mask(gate: BoxGate) -> None:
    gate.on("invented-eight")
    of = gate.uuids

    assert gate.ask(
        ("all", "6,2,4"),
        ("0", "6,2,4"),
        ("1-2", "6,2,4"),
        ("0", of[5]),
        ("1", f"{of[5]},GPU-88888001"),
        ("auto", f"{of[5]},3"),
        (of[4], "6,2,4"),
        ("3B:00.0", of[1]),
        ("all", "1,99,2"),
    ) == [
        [of[6], of[2], of[4]],
        [of[6]],
        [of[2], of[4]],
        [of[5]],
        [of[1]],
        [of[5], of[3]],
        [of[4]],
        [of[1]],
        [of[1]],
    ]


OFFER = (
    "this machine offers: 0=GPU-88888000-0000-4000-8000-000000000000 (NVIDIA H100 80GB HBM3), 1=GPU-88888001-"
)


REFUSALS = [
    ("8", None, f"no GPU '8'; {OFFER}"),
    ("5-9", None, f"no GPU '8'; {OFFER}"),
    ("GPU-9", None, f"no GPU 'GPU-9'; {OFFER}"),
    ("FF:00.0", None, f"no GPU 'FF:00.0'; {OFFER}"),
    ("GPU-88888", None, f"GPU 'GPU-88888' is the start of 8 UUIDs; {OFFER}"),
    ("1,0-2", None, "--gpus=1,0-2 names GPU-88888001-0000-4000-8000-000000000001 twice"),
    ("0,19:00.0", None, "--gpus=0,19:00.0 names GPU-88888000-0000-4000-8000-000000000000 twice"),
    ("2,4C:00.0", None, "--gpus=2,4C:00.0 names GPU-88888002-0000-4000-8000-000000000002 twice"),
    ("3-1", None, "--gpus range '3-1' runs backwards; write '1-3'"),
    (
        "2",
        "5,6",
        "no GPU '2' inside the mask (NVML's GPU 2 is masked out); CUDA_VISIBLE_DEVICES='5,6' leaves: 0=",
    ),
    ("CB:00.0", "5,3", "GPU 'CB:00.0' is masked out; CUDA_VISIBLE_DEVICES='5,3' leaves: 0=GPU-88888005-"),
    ("all", "", "--gpus=all finds no GPU; CUDA_VISIBLE_DEVICES='' leaves: none"),
    ("auto", "-1", "--gpus=auto finds no GPU; CUDA_VISIBLE_DEVICES='-1' leaves: none"),
    ("0", "5,5", "CUDA_VISIBLE_DEVICES='5,5' names GPU-88888005-0000-4000-8000-000000000005 twice"),
    (
        "0",
        "MIG-1",
        "CUDA_VISIBLE_DEVICES='MIG-1' names the MIG instance 'MIG-1'; only whole cards can be gated",
    ),
]


def test_what_can_not_be_had_is_said_in_words(gate: BoxGate) -> None:
    answers = gate.on("invented-eight").ask(*[(wanted, mask) for wanted, mask, _ in REFUSALS])

    for answer, (wanted, mask, words) in zip(answers, REFUSALS, strict=True):
        assert str(answer).startswith(f"usage: {words}"), (wanted, mask)


def test_a_recorded_card_by_all_its_names(gate: BoxGate) -> None:
    gate.on("one-h200")

    asked = ["0", "all", "auto", "GPU-d8c01c47", "00:06.0", "00000000:00:06.0"]
    assert gate.ask(*[(name, None) for name in asked]) == [gate.uuids] * len(asked)


def test_a_card_in_mig_mode_is_refused_by_name_and_its_neighbour_is_not(gate: BoxGate) -> None:
    gate.on("invented-mig")
    refusal = f"usage: {gate.uuid(0)} is in MIG mode; only whole cards can be gated"

    assert gate.ask(("0", None), ("all", None), ("1", None), ("all", "1"), ("0", gate.uuid(1))) == [
        refusal,
        refusal,
        [gate.uuid(1)],
        [gate.uuid(1)],
        [gate.uuid(1)],
    ]


def test_a_container_has_the_one_card_that_it_was_given(gate: BoxGate) -> None:
    gate.on("invented-container")
    mine = gate.uuid(3)

    first, *others = gate.ask(("0", None), ("all", None), ("auto", None), ("3", None), ("5D:00.0", None))
    assert others == [[mine]] * 4
    assert first == f"usage: no GPU '0'; this machine offers: 3={mine} (NVIDIA H100 80GB HBM3)"
