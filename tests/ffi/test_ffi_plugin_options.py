"""The program that asks a plugin which create options it knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ffi.helpers import PLUGINS, Builds, Json, run, site_file


@pytest.fixture(scope="session")
def program(project: Path, builds: Builds) -> Path:
    return builds("gcc", "-O2", "ffi/plugin_options.c", "-ldl", "-o", "plugin_options", cwd=project)


def test_a_plugin_that_knows_its_options_tells_them_apart(program: Path, tmp_path: Path) -> None:
    plugin = site_file(*PLUGINS["lammps"])

    done = run(program, plugin, "cpu_device_count", "nonsense", cwd=tmp_path)

    known, unknown = [json.loads(line) for line in done.stdout.splitlines()]
    assert known == {
        "option": "cpu_device_count",
        "words": "PJRT_Client_Create: Option passed to PJRT_Client_Create with name cpu_device_count has type "
        "index 3 but expected type index is 1",
    }
    assert "Unexpected option name passed to PJRT_Client_Create: nonsense" in unknown["words"]


def test_a_plugin_that_takes_anything_says_nothing(program: Path, tiny: Path, tmp_path: Path) -> None:
    answer: Json = json.loads(run(program, tiny, "nonsense", cwd=tmp_path).stdout)

    assert answer == {"option": "nonsense", "words": None}


def test_what_is_no_plugin_is_refused(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path / "none.so", "memory_fraction", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert "none.so: cannot open shared object file" in done.stderr
