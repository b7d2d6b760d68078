"""What is left of a broken cell: its evidence, and a script that breaks it again, as it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.boxes.breaking import Broken, break_everything

FEW = "crash or bound or otherwise"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> Broken:
    """One run for all that is said of it; `python -m benchmarks.reproductions` does it with every kind of failure."""
    return break_everything(tmp_path_factory.mktemp("broken"), libraries, FEW)


def test_each_broken_cell_has_a_folder(broken: Broken) -> None:
    second = broken.gate.uuid(1)
    names = {path.name for path in (broken.gate.out / "broken").iterdir()}

    assert names == {"a.crash-xla", f"a.bound-xla-{second}", "a.otherwise"}
    assert f"3 broken cells have their evidence and repro.sh in {broken.gate.out / 'broken'}" in broken.output


def test_a_folder_has_what_the_run_knew(broken: Broken) -> None:
    folder = broken.folder("crash")
    journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]

    assert [line["type"] for line in journal[:3]] == ["item", "start", "result"]
    assert {line["type"] for line in journal[3:]} == {"attempt"}
    assert "Segmentation fault" in (folder / "stderr.txt").read_text()
    assert any(
        "libcuda.so.1" in str(table) for table in json.loads((folder / "libraries.json").read_text()).values()
    )
    assert json.loads((folder / "versions.json").read_text())["packages"]["pytest"] == pytest.__version__
    assert json.loads((folder / "cell.json").read_text()) in broken.gate.verdict["cells"]


def test_no_script_tells_what_does_not_bear_on_the_run(broken: Broken) -> None:
    for path in (broken.gate.out / "broken").rglob("*"):
        assert path.is_dir() or "a word of honour" not in path.read_text()


def test_a_script_reproduces_what_it_is_of(broken: Broken, tmp_path: Path) -> None:
    """The one that has its card to be the same; `benchmarks/reproductions.py` tries each kind."""
    done = broken.reproduced("bound", tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"expected: broken ({broken.cell('bound')['cause']})" in done.stdout
    assert list(tmp_path.iterdir()) == []
