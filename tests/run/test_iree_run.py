"""IREE cells in a run: compiled, executed, proved; refused by name; and left out where there is no IREE."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.run.gate import RUN_LINEAR, Gate, Json

TESTS = (
    RUN_LINEAR
    + """
import pytest

@pytest.mark.spec("a.linear")
def test_linear(session, project):
    run_linear(session, project)

@pytest.mark.spec("a.version")
def test_version(iree_compiler, measure):
    measure(commit=iree_compiler.said.commit)
"""
)
CATALOG = """
[a.linear]
kind = "step"
title = "Nets run"
heading = "First"
on = "any"
lowerers = ["xla", "iree"]

[a.version]
kind = "step"
title = "It says a version"
heading = "First"
when = ["iree-compile"]
lowerers = ["iree"]
"""


@pytest.fixture
def suite(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate with cells of both lowerers, and a cache of its own."""
    for name in ("IREE_BACKEND", "IREE_CHIP", "IREE_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDABOOT_MODULE_CACHE", str(gate.path / "modules"))
    return gate.suite(TESTS, CATALOG)


def outcomes(gate: Gate) -> dict[tuple[str, str], str]:
    return {(cell["spec"], cell["lowerer"]): cell["outcome"] for cell in gate.verdict["cells"]}


def cells_of(gate: Gate) -> dict[tuple[str, str], Json]:
    """The cells of a run that is accepted."""
    assert gate.here().ret == 0
    return {(cell["spec"], cell["lowerer"]): cell for cell in gate.verdict["cells"]}


def test_both_lowerers_run_and_the_second_run_compiles_nothing(suite: Gate) -> None:
    first = cells_of(suite)
    second = cells_of(suite)

    evidence = second["a.linear", "iree"]["evidence"]
    assert first["a.linear", "iree"]["evidence"]["module"]["made"]
    assert not evidence["module"]["made"]
    assert evidence["target"] == "llvm-cpu/generic"
    assert evidence["facts"]["describe"]["driver"] == "local-task"
    assert (
        suite.verdict["toolchain"]["iree"]["runtime"]["commit"]
        == second["a.version", "iree"]["measurements"]["commit"]
    )


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("IREE_CHIP", "Step 4: IREE_CHIP='' is set to the empty string"),
        ("IREE_DEVICE", "Step 4: IREE_DEVICE='' is set to the empty string"),
    ],
)
def test_an_empty_variable_breaks_irees_cells_by_name_and_no_others(
    suite: Gate, monkeypatch: pytest.MonkeyPatch, variable: str, words: str
) -> None:
    monkeypatch.setenv(variable, "")

    assert suite.here().ret == 1
    assert outcomes(suite)["a.linear", "iree"] == "broken"
    assert outcomes(suite)["a.linear", "xla"] == "holds"
    assert any(words in reason for reason in suite.verdict["reasons"])


def stand_in(gate: Gate, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A compiler of a few lines, the first on PATH."""
    program = gate.path / "bin/iree-compile"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_compiler_of_another_commit_is_a_contradiction(
    suite: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(suite, monkeypatch, f"echo IREE compiler version 3.13.0 @ {'0' * 40}")

    assert suite.here().ret == 13
    assert suite.verdict["verdict"] == "environment"
    assert f"the IREE compiler is of commit {'0' * 40}, the runtime of" in suite.verdict["reasons"][0]


def test_a_compiler_that_crashes_breaks_irees_cells_and_no_others(
    suite: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(suite, monkeypatch, "kill -SEGV $$")

    assert suite.here().ret == 1
    assert outcomes(suite) == {
        ("a.linear", "xla"): "holds",
        ("a.linear", "iree"): "broken",
        ("a.version", "iree"): "broken",
    }
    assert any("iree-compile --version failed; `pip install" in reason for reason in suite.verdict["reasons"])


def without_compiler(monkeypatch: pytest.MonkeyPatch, runtime: bool = True) -> None:  # noqa: FBT001, FBT002 - a test's
    """A machine whose interpreter has IREE's runtime alone, or nothing of IREE."""
    from pytest_cudaboot.probes import toolchain

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(toolchain, "_iree_package", lambda _: [])
    if not runtime:
        monkeypatch.setattr(toolchain, "_iree_runtime", lambda _: [])


def test_without_a_compiler_kept_modules_are_enough(suite: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_cudaboot.cli import main

    assert (
        main(["compile", str(suite.path / "modules"), "--target", "cpu", "--project", str(project(suite))])
        == 0
    )
    without_compiler(monkeypatch)

    assert suite.here("--cudaboot-project", "project").ret == 0
    assert outcomes(suite) == {("a.linear", "xla"): "holds", ("a.linear", "iree"): "holds"}
    assert suite.verdict["scope"]["out"] == [{"spec": "a.version", "reason": "no iree-compile"}]


def project(gate: Gate) -> Path:
    """A checkout with the reference's smallest net alone."""
    from pytest_cudaboot.project import suite_root

    reference, made = suite_root() / "fixtures/reference", gate.path / "project"
    (made / "nets").mkdir(parents=True)
    shutil.copytree(reference / "ffi", made / "ffi")
    for name in ("linear_fwd.mlir", "linear_train_step.mlir"):
        shutil.copy2(reference / "nets" / name, made / "nets")
    return made


def test_without_iree_everything_of_it_is_out_of_scope_and_the_rest_is_accepted(
    suite: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_compiler(monkeypatch, runtime=False)

    assert suite.here().ret == 0
    assert outcomes(suite) == {("a.linear", "xla"): "holds"}
    assert suite.verdict["scope"]["out"] == [{"spec": "a.version", "reason": "no iree-compile"}]
    assert suite.verdict["scope"]["partly"] == [
        {"spec": "a.linear", "lowerer": "iree", "reason": "no IREE runtime"}
    ]


def test_iree_that_was_named_and_is_not_there_is_no_accept(
    suite: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_compiler(monkeypatch, runtime=False)

    assert suite.here("--cudaboot-lowerers", "xla,iree").ret == 12
    assert "nothing is proved of lowerer iree: no deciding gate cell holds" in suite.verdict["reasons"]
