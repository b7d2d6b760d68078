"""Remembered durations: shared by runs at once, whole after a kill, and ignored with a word when broken."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from pytest_cudaboot.probes.history import KEPT, NAME, THINGS, History, default_folder

A, B = ("a.works", "check", "xla"), ("b.works", "check", "")


def test_what_was_learnt_is_known_to_the_next_run(tmp_path: Path) -> None:
    for seconds in (1.0, 9.0, 2.0):
        assert History(tmp_path).learn({A: seconds}) is None
    history = History(tmp_path)

    assert (history.typical(A), history.longest([A, B]), history.typical(B)) == (2.0, 9.0, None)


def test_the_last_few_count(tmp_path: Path) -> None:
    for seconds in range(10):
        History(tmp_path).learn({A: float(seconds)})

    assert History(tmp_path).typical(A) == 10 - 1 - KEPT // 2


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": "12"}', '{"a": [NaN]}', '{"a": [-1]}', "\x00"])
def test_a_broken_file_is_ignored_with_a_word_and_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    broken = History(tmp_path)
    assert broken.complaint is not None
    assert broken.complaint.startswith(f"what {str(tmp_path / NAME)!r} says of durations can not be read")
    assert broken.typical(A) is None

    assert broken.learn({A: 1.0}) is None
    assert (History(tmp_path).complaint, History(tmp_path).typical(A)) == (None, 1.0)


def test_a_folder_that_can_not_be_written_costs_a_word(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert str(History(tmp_path / "none").learn({})) == "None"
    assert "durations are not remembered: " in str(History(tmp_path / "file" / "x").learn({A: 1.0}))


def test_what_a_kill_left_half_written_is_not_read(tmp_path: Path) -> None:
    History(tmp_path).learn({A: 1.0})
    (tmp_path / NAME).with_suffix(".tmp").write_text('{"a": [1')

    assert History(tmp_path).typical(A) == 1.0
    assert History(tmp_path).learn({B: 2.0}) is None
    assert (History(tmp_path).typical(A), History(tmp_path).typical(B)) == (1.0, 2.0)


def test_what_was_not_seen_for_long_is_forgotten_first(tmp_path: Path) -> None:
    History(tmp_path).learn({A: 1.0})
    History(tmp_path).learn({("n", str(number)): 1.0 for number in range(THINGS - 1)})
    History(tmp_path).learn({A: 2.0, B: 1.0})

    history = History(tmp_path)
    assert (history.typical(A), history.typical(("n", "0"))) == (1.5, None)
    assert len(json.loads((tmp_path / NAME).read_text())) == THINGS


def _learn(folder: str, name: str) -> None:
    for number in range(5):
        History(Path(folder)).learn({(name, str(number)): 1.0})


def test_two_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    runs = [spawn.Process(target=_learn, args=(str(tmp_path), name)) for name in ("one", "two")]
    for run in runs:
        run.start()
    for run in runs:
        run.join()

    assert [run.exitcode for run in runs] == [0, 0]
    assert len(json.loads((tmp_path / NAME).read_text())) == 10


def test_a_variable_names_another_folder(tmp_path: Path) -> None:
    assert default_folder({"CUDABOOT_HISTORY": str(tmp_path)}) == tmp_path
    assert default_folder({"CUDABOOT_HISTORY": ""}).name == "cudaboot"
