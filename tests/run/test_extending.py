"""The package of docs/extending.md adds a lowerer, conditions, skews and a monitor, with a document and a catalogue."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import pytest_cudaboot
from pytest_cudaboot.rules.catalog import load_catalog
from tests.run.gate import PATH, Gate

GUIDE = Path(pytest_cudaboot.__file__).parents[1] / "docs" / "extending.md"
FILE = re.compile(r"^(`{3,})\w+ title=(\S+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
COMMAND = ("-p", "toy.plugin", "--gpus", "none")


@pytest.fixture
def example(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The files of the guide, as they are printed there."""
    for _, name, text in FILE.findall(GUIDE.read_text()):
        path = gate.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{PATH}:{gate.path}")
    monkeypatch.syspath_prepend(gate.path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        monkeypatch.delitem(sys.modules, name)
    return gate


def change(gate: Gate, name: str, old: str, new: str) -> None:
    """Edit a file of the example."""
    path = gate.path / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run(gate: Gate, *words: str) -> pytest.RunResult:
    return gate.pytester.runpytest_inprocess(*COMMAND, "-n", "0", *words, "specs")


def test_the_guides_command_ends_in_an_accept(example: Gate) -> None:
    result = example.pytester.runpytest_subprocess(*COMMAND, "specs")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["accept · checkout · 2 specs hold"])
    assert example.outcomes == {"toy.doubles": "holds", "toy.no-division": "holds"}
    cell = example.cells["toy.doubles"]
    assert (cell["lowerer"], cell["platform"]) == ("toy", "cpu")
    assert cell["evidence"]["monitors"]["toy-clock"]["seconds"] > 0
    assert example.verdict["toolchain"]["offers"]["toy"]["implementation"] == "toy.lowerer:Toy"


def test_a_lowerer_that_can_not_be_had_is_out_of_scope(
    example: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_OFF", "1")

    run(example)

    out = {entry["spec"]: entry["reason"] for entry in example.verdict["scope"]["out"]}
    assert out == {"toy.doubles": "TOY_OFF is set", "toy.no-division": "TOY_OFF is set"}


def test_a_condition_that_is_not_met_is_the_reason(example: Gate) -> None:
    (example.path / "checkout" / "graphs" / "double.mlir").unlink()

    run(example)

    assert example.verdict["scope"]["out"][0] == {"spec": "toy.doubles", "reason": "no graphs/*.mlir"}


def test_a_skew_makes_the_run_environment(example: Gate) -> None:
    change(example, "toy/plugin.py", "if major != 3", "if major == 3")

    result = example.pytester.runpytest_subprocess(*COMMAND, "specs")

    assert (result.ret, example.verdict["verdict"]) == (13, "environment")
    assert "the toy knows Python 3, and this is 3" in example.verdict["reasons"][0]


def test_a_lowerer_that_dies_is_an_ordinary_failure(example: Gate) -> None:
    change(
        example,
        "toy/lowerer.py",
        "        values = dict",
        "        import os; os.abort()\n        values = dict",
    )

    assert run(example).ret == 1
    assert (example.cells["toy.doubles"]["outcome"], example.cells["toy.doubles"]["cause"]) == (
        "broken",
        "crash",
    )


def test_its_name_is_one_that_may_be_asked_for(example: Gate) -> None:
    assert run(example, "--cudaboot-lowerers", "toy").ret == 0

    result = run(example, "--cudaboot-lowerers", "tpu")
    assert result.ret == 4
    assert "--cudaboot-lowerers: 'tpu' is not one of xla, iree, toy" in str(result.errlines)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name="toy"', 'name="xla"', "the name 'xla' is no word of its own; taken are xla, iree"),
        ("toy.lowerer:Toy", "toy.lowerer", "'toy.lowerer' is not module:Class"),
        ("return [LowererOffer", "return ['toy'] or [LowererOffer", "'toy' is no LowererOffer"),
        ('"toy.graphs"', '"gpu"', "'gpu' is no condition of a package's own, such as package.name"),
    ],
)
def test_an_answer_of_another_form_is_refused(example: Gate, old: str, new: str, words: str) -> None:
    change(example, "toy/plugin.py", old, new)

    result = run(example)

    assert result.ret == 4
    assert words in str(result.errlines)


def test_without_the_package_its_lowerer_is_unknown(example: Gate) -> None:
    result = example.pytester.runpytest_inprocess("--gpus", "none", "-n", "0", "specs")

    assert result.ret == 4
    assert "'toy' is not one of xla, iree" in str(result.errlines)


def test_a_catalogue_can_be_read_where_nobody_knows_its_lowerers(example: Gate) -> None:
    catalog = load_catalog(example.path / "specs" / "catalog.toml", lowerers=None)

    assert catalog.specs["toy.doubles"].lowerers == ("toy",)
