"""The value of an option is no test path, whichever of pytest's two spellings it has."""

from __future__ import annotations

import pytest

from tests.run.gate import Gate

# Only with this package's option does the test pass, so it shows that the right ini file was read, addopts and all.
KNOWS_ITS_INI = """
import pytest
@pytest.mark.spec("a.works")
def test_works(measure, request, project):
    assert request.config.getoption("verbose") == 2
    measure(root=str(request.config.rootpath), ini=str(request.config.inipath))
"""


@pytest.fixture
def elsewhere(gate: Gate) -> Gate:
    """A suite whose ini file has options, beside a folder with an ini file of its own."""
    gate.suite(KNOWS_ITS_INI)
    (gate.path / "pytest.ini").write_text("[pytest]\naddopts = -vv\n")
    away = gate.path.parent / f"{gate.path.name}-away"
    (away / "ffi").mkdir(parents=True)
    (away / "pytest.ini").write_text("[pytest]\n")
    (away / "CUDA.md").write_text("# Fast path\n")
    return gate


@pytest.mark.parametrize("spelling", ["{option}={value}", "{option} {value}"], ids=["with =", "two words"])
def test_a_projects_folder_is_not_the_rootdir(elsewhere: Gate, spelling: str) -> None:
    project = f"{elsewhere.path}-away"
    words = spelling.format(option="--cudaboot-project", value=project).split()

    elsewhere.pytester.runpytest_subprocess("--gpus", "none", *words, "test_suite.py")

    (cell,) = elsewhere.verdict["cells"]
    assert cell["measurements"]["root"] == str(elsewhere.path), cell["reason"]
    assert cell["measurements"]["ini"] == str(elsewhere.path / "pytest.ini")
    assert elsewhere.verdict["project"]["path"] == project


def test_an_output_folder_outside_is_not_the_rootdir_of_workers(elsewhere: Gate) -> None:
    out = f"{elsewhere.path}-away"

    elsewhere.pytester.runpytest_subprocess("--gpus", "none", "--cudaboot-out", out, "test_suite.py")

    elsewhere.out = elsewhere.path.parent / f"{elsewhere.path.name}-away"
    (cell,) = elsewhere.verdict["cells"]
    assert cell["nodeids"] == ["test_suite.py::test_works[host]"]
    assert cell["measurements"]["root"] == str(elsewhere.path)


def test_without_a_path_of_its_own_a_run_stays_where_it_is(gate: Gate) -> None:
    gate.suite()

    gate.pytester.runpytest_inprocess("--gpus", "none", "-n", "0", "--cudaboot-out", str(gate.out), ".")

    assert gate.outcomes == {"a.works": "holds"}
