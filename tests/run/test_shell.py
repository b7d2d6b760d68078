"""What a script that runs a test again has to say: options that matter, variables that matter, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudaboot.report.compare import NO_ANSWER, NOT_BROKEN, OTHERWISE, SAME, main, status
from pytest_cudaboot.report.shell import Shell, exports, shell_of, variables
from tests.run.gate import ROOT


def test_only_what_bears_on_the_run_is_told() -> None:
    told = variables(
        {"TOKEN": "secret", "XLA_FLAGS": "-x", "CUDABOOT_RUN": "r", "IREE_SRC": "/i", "PATH": "/bin"}
    )

    present = {name: value for name, value in told.items() if value is not None}
    assert present == {"XLA_FLAGS": "-x", "IREE_SRC": "/i", "PATH": "/bin", "PYTHONPATH": str(ROOT)}
    assert told["CUDA_VISIBLE_DEVICES"] is None


def test_a_shell_sets_what_was_set_and_unsets_what_was_not() -> None:
    shell = Shell(variables={"A": "it's $HOME", "B": None}, folder=Path(), roots=(), options=())
    lines = "\n".join([*exports(shell), 'printf "%s|%s" "$A" "${B-unset}"'])

    assert subprocess.check_output(["/bin/sh", "-c", lines], env={"B": "1"}, text=True) == "it's $HOME|unset"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["-p", "no:x", "-k", "one", "-x", "tests"], ["-p", "no:x"]),
        (["-pno:x", "--gpus", "0", "-oxfail_strict=1", "-vv"], ["-pno:x", "-oxfail_strict=1"]),
        (["--junitxml", "j.xml", "--import-mode=importlib"], ["--import-mode=importlib"]),
    ],
)
def test_options_that_change_what_a_test_is_are_kept(
    pytester: pytest.Pytester, words: list[str], kept: list[str]
) -> None:
    config = pytester.parseconfig("-c", str(pytester.makeini("[pytest]")))
    object.__setattr__(
        config, "invocation_params", config.InvocationParams(args=words, plugins=(), dir=pytester.path)
    )
    options = shell_of(config, {}, ()).options

    assert list(options) == [*kept, "--rootdir", str(pytester.path), "-c", str(pytester.path / "tox.ini")]


def test_a_test_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").touch()
    shell = Shell(
        variables={}, folder=Path(), roots=(tmp_path / "no", tmp_path), options=(), python=sys.executable
    )

    assert shell.test("test_one.py::test_it[a::b]") == f"{tmp_path}/test_one.py::test_it[a::b]"
    assert shell.test("test_two.py::test_it") == "test_two.py::test_it"


@pytest.mark.parametrize(
    ("outcome", "cause", "answer"),
    [
        ("broken", "crash", SAME),
        ("broken", "hang", OTHERWISE),
        ("holds", None, NOT_BROKEN),
        ("expired", None, NOT_BROKEN),
        ("not-run", None, NO_ANSWER),
        ("blocked", None, NO_ANSWER),
    ],
)
def test_what_a_second_run_says_of_the_first(outcome: str, cause: str | None, answer: int) -> None:
    assert status({"outcome": "broken", "cause": "crash"}, {"outcome": outcome, "cause": cause}) == answer


def test_a_run_without_a_verdict_has_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cell.json").write_text("{}")

    assert main([str(tmp_path / "cell.json"), str(tmp_path / "verdict.json")]) == NO_ANSWER
    assert capsys.readouterr().out.startswith("no answer: ")
