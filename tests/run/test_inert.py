"""Installed is not active: without `--gpus` the plugin is not there."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.run.gate import ROOT, Gate

RUN = ("startup", "deciding", "joining", "controller", "worker", "assemble")
HEAVY = (
    "pynvml",
    "cffi",
    "numpy",
    "rich",
    "elftools",
    "xdist.scheduler",
    *(f"pytest_cudaboot.run.{name}" for name in RUN),
)
WITNESS = """
import json, sys
def pytest_unconfigure():
    open("modules.json", "w").write(json.dumps(sorted(sys.modules)))
"""


def plain(gate: Gate, *words: str) -> str:
    """What pytest prints, without times and the list of plugins."""
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words]
    done = subprocess.run(argv, cwd=gate.path, capture_output=True, text=True, check=True)
    return re.sub(r"plugins: .*|in [0-9.]+s", "", done.stdout + done.stderr)


def test_nothing_is_imported_printed_or_left(gate: Gate) -> None:
    gate.suite("def test_mine(): pass")
    (gate.path / "conftest.py").write_text(WITNESS)
    with_it, without_it = plain(gate), plain(gate, "-p", "no:cudaboot")

    assert with_it == without_it
    assert not gate.out.exists()


def test_what_is_heavy_stays_outside(gate: Gate) -> None:
    gate.suite("def test_mine(): pass")
    (gate.path / "conftest.py").write_text(WITNESS)
    plain(gate)
    modules = set(json.loads((gate.path / "modules.json").read_text()))

    assert "pytest_cudaboot.plugin" in modules
    assert modules.isdisjoint(HEAVY)


def test_a_worker_imports_nothing_that_only_a_controller_needs() -> None:
    """It would be paid for each card, and again for each worker that replaces one."""
    code = "import sys; from pytest_cudaboot.run import joining, startup; print(*sys.modules)"
    told = subprocess.check_output([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, text=True)

    assert "pytest_cudaboot.run.joining" in told.split()
    assert not {"markdown_it", "numpy", "packaging.requirements", "pytest_cudaboot.run.controller"} & {
        *told.split()
    }


def test_help_and_version_begin_no_run(gate: Gate) -> None:
    gate.suite().old_accept()

    shown = gate.here("--help")
    assert shown.ret == 0
    shown.stdout.fnmatch_lines(["GPU toolchain gate:", "  --gpus=SEL*"])
    assert gate.here("--version").ret == 0
    assert '"accept"' in (gate.out / "verdict.json").read_text()


def test_an_ini_file_alone_begins_no_run(gate: Gate) -> None:
    gate.suite("def test_mine(): pass")
    (gate.path / "pytest.ini").write_text("[pytest]\ncudaboot_lowerers = xla\ncudaboot_out = results\n")
    result = gate.pytester.runpytest_inprocess()

    result.assert_outcomes(passed=1)
    assert not (gate.path / "results").exists()


def test_the_ini_file_speaks_where_the_command_line_does_not(gate: Gate) -> None:
    gate.suite()
    (gate.path / "pytest.ini").write_text("[pytest]\ncudaboot_lowerers = iree\ncudaboot_out = results\n")

    assert gate.here().ret == 12
    assert gate.here("--cudaboot-lowerers", "xla,iree", "--cudaboot-out", "other").ret == 12
    assert gate.here("--cudaboot-lowerers", "").ret == 12
    assert (gate.path / "results" / "verdict.json").exists()
    assert (gate.path / "other" / "verdict.json").exists()


def test_a_gate_inside_a_test_of_a_gate_is_no_worker(gate: Gate) -> None:
    """A command of a test is run as from a shell, so a pytest in it is a controller of its own."""
    inner = gate.path.parent / f"{gate.path.name}-inner"
    inner.mkdir()
    gate.suite()
    for name in ("test_suite.py", "catalog.toml", "pytest.ini"):
        (inner / name).write_text((gate.path / name).read_text())
    gate.suite(
        "import pytest, sys, pathlib\n"
        '@pytest.mark.spec("a.works")\n'
        "def test_outer(run, evidence):\n"
        "    evidence.ran_on('cpu', [])\n"
        f"    run([sys.executable, '-m', 'pytest', '--gpus', 'none', '-n', '0', '.'], cwd=pathlib.Path({str(inner)!r}))\n"
    )
    result = gate.away()

    assert result.ret == 0
    assert json.loads((inner / ".cudaboot" / "verdict.json").read_text())["verdict"] == "accept"


@pytest.mark.parametrize("words", [("--gpus",), ("--gpus", "")])
def test_an_empty_selection_is_a_usage_error(gate: Gate, words: tuple[str, ...]) -> None:
    result = gate.suite().pytester.runpytest_inprocess("-n", "0", ".", *words)

    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--gpus*"])


def test_a_run_that_computes_nothing_does_without_what_is_heavy(gate: Gate) -> None:
    """Each of its processes starts sooner."""
    gate.suite()
    (gate.path / "conftest.py").write_text(WITNESS)
    plain(gate, "--gpus", "none", "-n", "0", ".")
    modules = set(json.loads((gate.path / "modules.json").read_text()))

    assert "pytest_cudaboot.run.fixtures" in modules
    assert modules.isdisjoint({"numpy", "cffi", "elftools", "rich"})
