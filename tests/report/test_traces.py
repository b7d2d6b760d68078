"""`cudaboot traces A B`: what agrees, what differs, and what is not compared at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.cli import main
from pytest_cudaboot.model import Json

Change = Callable[[Json], None]


def header(lowerer: str = "xla", steps: int = 4) -> Json:
    return {
        "kind": "header",
        "net": "linear",
        "lowerer": lowerer,
        "shim": f"/somewhere/lib{lowerer}.so",
        "device": "cpu",
        "platform": "cpu",
        "parameters": 7850,
        "dataset": {"path": f"data-{lowerer}", "train_images": 1029, "fingerprint": "00ff"},
        "config": {"steps": steps, "seed": 1, "lr": 0.1, "schedule": "constant", "shift": 0, "batch": 128},
        "artifacts": {"train_step": "aa", "fwd": "bb"},
        "pid": 7 if lowerer == "xla" else 8,
    }


def records(head: Json, losses: list[float]) -> list[Json]:
    steps = [
        {"kind": "step", "step": place, "loss": loss, "update_norm": loss / 10}
        for place, loss in enumerate(losses)
    ]
    return [head, *steps, {"kind": "eval", "accuracy": 0.9, "images": 768, "steps": len(losses)}]


def write(path: Path, lines: list[Json]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


LOSSES = [2.3, 2.0, 1.5, 1.1]


@pytest.fixture
def a(tmp_path: Path) -> str:
    return write(tmp_path / "a.jsonl", records(header(), LOSSES))


@pytest.fixture
def b(tmp_path: Path) -> Callable[..., str]:
    """A function that writes the other lowerer's trace of the same program."""

    def trace(losses: list[float] = LOSSES, change: Change | None = None) -> str:
        head = header("iree", len(losses))
        if change is not None:
            change(head)
        return write(tmp_path / "b.jsonl", records(head, losses))

    return trace


def test_the_same_program_on_two_lowerers_agrees(
    a: str, b: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", a, b([2.3, 2.0, 1.5, 1.1001])]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{a}: linear by xla on cpu",
        f"{a.replace('a.jsonl', 'b.jsonl')}: linear by iree on cpu",
        "loss: 4 steps, at most 9.09e-05 apart, at step 3",
        "update_norm: 4 steps, at most 9.09e-05 apart, at step 3",
        "agree",
    ]


def test_a_step_that_differs_is_named(
    a: str, b: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", a, b([2.3, 2.0, 1.2, 1.1])]) == 1

    told = capsys.readouterr().out
    assert (
        "loss: 4 steps, at most 0.2 apart, at step 2; beyond 0.01 from step 2 on: 1.5 against 1.2\n" in told
    )
    assert told.endswith("differ\n")


def test_a_dropped_step_differs(a: str, b: Callable[..., str]) -> None:
    assert main(["traces", a, b([2.3, 2.3, 2.0, 1.5])]) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_differs_from_what_is(a: str, b: Callable[..., str], value: float) -> None:
    assert main(["traces", a, b([2.3, 2.0, value, 1.1])]) == 1


def test_only_the_first_steps_are_compared(a: str, b: Callable[..., str]) -> None:
    other = b([2.3, 2.0, 9.0, 9.0])

    assert main(["traces", a, other, "--steps", "2"]) == 0
    assert main(["traces", a, other, "--steps", "3"]) == 1


def test_a_longer_run_begins_as_a_shorter_one(a: str, b: Callable[..., str]) -> None:
    assert main(["traces", a, b([*LOSSES, 0.9, 0.8])]) == 0


def test_of_a_schedule_the_length_is_a_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], b: Callable[..., str]
) -> None:
    head = header()
    head["config"]["schedule"] = "tent"
    first = write(tmp_path / "tent.jsonl", records(head, LOSSES))

    def tent(other: Json) -> None:
        other["config"]["schedule"] = "tent"

    assert main(["traces", first, b([*LOSSES, 0.9], tent)]) == 4
    assert "config.steps: 4 against 5" in capsys.readouterr().err


def test_two_programs_are_refused_with_each_field_that_differs(
    a: str, b: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    def another(head: Json) -> None:
        head["net"] = "mlp"
        head["config"]["lr"] = 0.2
        head["artifacts"]["train_step"] = "cc"
        del head["dataset"]["fingerprint"]

    assert main(["traces", a, b(change=another)]) == 4
    assert (
        capsys.readouterr()
        .err.rstrip()
        .endswith(
            "are of two programs; artifacts.train_step: 'aa' against 'cc'; config.lr: 0.1 against 0.2; "
            "dataset.fingerprint: '00ff' against 'nothing'; net: 'linear' against 'mlp'"
        )
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty; a trace begins with a header"),
        ("plain words\n", ":1: no JSON: 'plain words'"),
        ("[1]\n", ":1: '[1]' is no JSON object"),
        ('{"kind":"step","step":0,"loss":1}\n', ":1: 'step' is no header"),
        ('{"kind":"header"}\n{"kind":"step","st', ':2: cut short: \'{"kind":"step","st\''),
        ('{"kind":"header"}\n', "no step; there is nothing to compare"),
        ('{"kind":"header"}\n{"kind":"step","step":1,"loss":1}\n', "step 1 stands where step 0 belongs"),
        ('{"kind":"header"}\n{"kind":"step","step":0,"loss":"low"}\n', "step 0 has the loss 'low'"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(
    tmp_path: Path, a: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other"
    path.write_text(text)

    assert main(["traces", a, str(path)]) == 4
    assert f"cudaboot: {path}" in (told := capsys.readouterr().err)
    assert words in told


def test_a_trace_that_ends_before_its_header_says_is_refused(
    tmp_path: Path, a: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = write(tmp_path / "cut.jsonl", records(header("iree"), LOSSES)[:3])

    assert main(["traces", a, cut]) == 4
    assert f"{cut}: truncated: it ends after 2 steps, its header says 4" in capsys.readouterr().err


def test_files_that_can_not_be_read(tmp_path: Path, a: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\xfe")

    assert main(["traces", a, str(tmp_path / "absent")]) == 4
    assert "absent: can not be read: No such file or directory" in capsys.readouterr().err
    assert main(["traces", a, str(tmp_path / "binary")]) == 4
    assert "binary: no text, byte 4 is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--steps", "0"), ("--tolerance", "nan"), ("--tolerance", "-1")])
def test_a_comparison_of_nothing_is_refused(a: str, words: tuple[str, str]) -> None:
    assert main(["traces", a, a, *words]) == 4
