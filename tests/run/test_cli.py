"""The console script: what a spec is, and a recorded run judged again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.cli import main
from tests.run.gate import HELD, ROOT, Gate, catalog_of

FULL = """
[a.base]
kind = "step"
title = "The base"
heading = "Step 1: Base"

[a.gotcha]
kind = "gotcha"
canary = "upstream"
title = "Leave it unset"
heading = "Step 2: Run"
needs = ["a.base"]
when = ["compiler", "gpus:2"]
on = "any"
lowerers = ["iree"]
budget = 30
upstream = ["iree-org/iree#1"]
may = ["unsupported"]
"""
MARKED = """
import pytest
pytestmark = pytest.mark.spec("a.gotcha")
"""

NEGATE = """\
module @m {
  func.func @NAME(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.negate %x : tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
"""

Captured = pytest.CaptureFixture[str]


def test_explain_tells_everything_that_the_catalogue_says(gate: Gate, capsys: Captured) -> None:
    gate.suite(MARKED, FULL)
    (gate.path / "test_other.py").write_text('x.mark.spec("a.base")\n"a.gotcha"\n')

    assert main(["--catalog", "catalog.toml", "explain", "a.gotcha"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "     spec  a.gotcha",
        "    title  Leave it unset",
        "     kind  gotcha (upstream canary)",
        "  heading  Step 2: Run",
        "    track  toolchain",
        "  runs on  any",
        " lowerers  iree",
        "    needs  a.base",
        " in scope  with compiler, gpus:2",
        "   budget  30 s",
        "   may be  unsupported",
        " upstream  iree-org/iree#1",
        "    tests  test_suite.py",
        "   if red  a red check: the workaround no longer works",
        "           a red canary: what is guarded against is not refused any more, or not in the documented way",
        "           `expired`: upstream is mended, so the workaround and its text can go",
        "           `blocked`: a.base comes first",
        "           alone: pytest --gpus auto ./test_suite.py",
    ]


def test_explain_knows_what_waits_for_a_spec(gate: Gate, capsys: Captured) -> None:
    gate.suite(MARKED, FULL)

    assert main(["--catalog", "catalog.toml", "explain", "a.base"]) == 0
    assert "needed by  a.gotcha" in capsys.readouterr().out


def test_a_spec_that_is_not_there(gate: Gate, capsys: Captured) -> None:
    gate.suite(MARKED, FULL)

    assert main(["--catalog", "catalog.toml", "explain", "a.gotchas"]) == 4
    assert (
        "no spec 'a.gotchas' in catalog.toml; did you mean 'a.gotcha'?; it has: a.base, a.gotcha"
        in capsys.readouterr().err
    )


def test_the_acceptance_suite_is_explained_without_a_word_more(capsys: Captured) -> None:
    assert main(["explain", "no.such.spec"]) == 4
    assert "acceptance/catalog.toml" in capsys.readouterr().err


def test_a_recorded_run_is_judged_to_the_same_words(gate: Gate, capsys: Captured) -> None:
    other = '@pytest.mark.spec("b.other")\ndef test_other(): assert 1 == 2'
    gate.suite(HELD + other, catalog_of("b.other")).here()
    said = gate.pytester.path / ".cudaboot" / "ledger.jsonl"
    printed = capsys.readouterr().out.partition("\n\nFirst\n")[2].splitlines()[:-1]

    assert main(["--catalog", "catalog.toml", "replay", str(said)]) == 1
    replayed = capsys.readouterr().out.splitlines()[1:-1]
    assert replayed == [line for line in printed if line]
    assert replayed[-2] == "reject · reference · 1 spec holds, 1 broken"


def test_a_ledger_that_was_cut_off_is_incomplete(gate: Gate, capsys: Captured) -> None:
    gate.suite().here()
    ledger = gate.out / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-20])

    assert main(["--catalog", "catalog.toml", "replay", str(ledger)]) == 12
    assert "the ledger ends in the middle of a line" in capsys.readouterr().out


def test_a_ledger_under_another_catalogue_is_incomplete(gate: Gate, capsys: Captured) -> None:
    gate.suite().here()
    (gate.path / "catalog.toml").write_text((gate.path / "catalog.toml").read_text() + "\n# changed\n")

    assert main(["--catalog", "catalog.toml", "replay", str(gate.out / "ledger.jsonl")]) == 12
    assert "the ledger was written under another catalogue" in capsys.readouterr().out


def test_a_ledger_that_is_not_there(gate: Gate, capsys: Captured) -> None:
    gate.suite()

    assert main(["--catalog", "catalog.toml", "replay", "none.jsonl"]) == 4
    assert capsys.readouterr().err == "cudaboot: none.jsonl: can not be read: No such file or directory\n"


def test_compile_without_a_compiler_lists_the_places(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("site.getsitepackages", list)
    monkeypatch.setattr("sys.path", [])

    assert main(["compile", str(tmp_path)]) == 4
    assert "cudaboot: no iree-compile; tried, in order:" in capsys.readouterr().err


def test_compile_fills_a_folder_once(tmp_path: Path, capsys: Captured) -> None:
    project = tmp_path / "project"
    (project / "ffi").mkdir(parents=True)
    (project / "nets").mkdir()
    for name in ("f_fwd", "f_train_step"):
        (project / f"nets/{name}.mlir").write_text(NEGATE.replace("NAME", name))
    words = [
        "compile",
        str(tmp_path / "kept"),
        "--project",
        str(project),
        "--target",
        "sm_86",
        "--target",
        "cpu",
    ]

    assert (main(words), main(words)) == (0, 0)
    told = capsys.readouterr().out.splitlines()
    graphs = ("f_fwd", "f_train_step", "integers")
    targets = ("cuda/sm_86", "llvm-cpu/generic")
    assert [line.split()[:2] for line in told[:6]] == [[name, to] for to in targets for name in graphs]
    assert [line.split()[-1] for line in told[7:13]] == ["kept"] * 6
    assert told[6].endswith(f"to use them: CUDABOOT_MODULE_CACHE={tmp_path / 'kept'}")


@pytest.mark.parametrize("target", ["", "ada"])
def test_compile_for_no_chip_is_the_users_mistake(tmp_path: Path, capsys: Captured, target: str) -> None:
    assert main(["compile", str(tmp_path), "--target", target]) == 4
    assert f"IREE_CHIP='{target}'" in capsys.readouterr().err


GRAPH = ROOT / "fixtures/reference/nets/linear_fwd.mlir"


def test_a_graph_that_both_lowerers_compute_has_no_bad_place(tmp_path: Path, capsys: Captured) -> None:
    assert main(["first-bad", str(GRAPH), "--to", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "xla: none of 3 operations is off by itself",
        "iree: none of 3 operations is off by itself",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([str(GRAPH), "--lowerers", "xla,tpu"], "no lowerer 'tpu'; there are: xla, iree"),
        (["nowhere.mlir"], "nowhere.mlir: can not be read"),
    ],
)
def test_a_search_of_nothing_is_the_users_mistake(words: list[str], why: str, capsys: Captured) -> None:
    assert main(["first-bad", *words]) == 4
    assert why in capsys.readouterr().err
