"""When the IREE shim's specs are in scope, and the words where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.probes.survey import survey
from pytest_cudaboot.project import Project
from pytest_cudaboot.run.iree_build import build_conditions

BOTH = {"IREE_SRC": "/src", "IREE_BUILD": "/build"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "ffi").mkdir()
    return Project(path=tmp_path, name="it", document=None, nets=(), survey=survey(tmp_path))


def test_a_named_tree_meets_both(project: Project) -> None:
    assert build_conditions(BOTH, project) == {"iree-tree": None, "iree-build": None}


@pytest.mark.parametrize(
    ("environ", "unset"),
    [
        ({}, "IREE_SRC and IREE_BUILD"),
        ({"IREE_SRC": "/src"}, "IREE_BUILD"),
        ({**BOTH, "IREE_SRC": ""}, "IREE_SRC"),
    ],
)
def test_what_is_not_set_is_the_reason(project: Project, environ: dict[str, str], unset: str) -> None:
    absence = f"no IREE build tree, for want of {unset}"

    assert build_conditions(environ, project) == {
        "iree-tree": absence,
        "iree-build": f"no ffi/libiree_ffi.so; {absence}",
    }


def test_a_library_in_the_project_meets_one_of_them(project: Project) -> None:
    (project.path / "ffi" / "libiree_ffi.so").touch()

    met = build_conditions({}, project)

    assert met["iree-build"] is None
    assert met["iree-tree"] is not None
