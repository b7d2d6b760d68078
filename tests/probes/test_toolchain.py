"""Searches: what is found, by which way, and the list of places where nothing was."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_cudaboot.errors import ToolMissingError
from pytest_cudaboot.probes.toolchain import (
    distribution_of,
    find_compiler,
    find_cpu_plugin,
    find_cuda_plugin,
    find_iree_compile,
)

XLA = "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"
LAMMPS = "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"
NO_VARIABLES: dict[str, str] = {}


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def cuda(folder: Path, major: int) -> Path:
    return put(folder / f"jax_plugins/xla_cuda{major}/xla_cuda_plugin.so")


def venv(project: Path, python: str = "3.12") -> Path:
    return project / f".venv/lib/python{python}/site-packages"


def site(tmp_path: Path, name: str = "a") -> Path:
    folder = tmp_path / name / "site-packages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_the_cpu_plugin_named_by_the_variable_stands_alone(tmp_path: Path) -> None:
    put(site(tmp_path) / XLA)
    named = put(tmp_path / "mine.so")
    found = find_cpu_plugin({"CUDABOOT_CPU_PLUGIN": str(named)}, [site(tmp_path)])

    assert (found.path, found.found_via) == (named, f"CUDABOOT_CPU_PLUGIN={named}")


def test_a_named_cpu_plugin_that_is_missing_does_not_fall_back(tmp_path: Path) -> None:
    put(site(tmp_path) / XLA)

    with pytest.raises(ToolMissingError) as caught:
        find_cpu_plugin({"CUDABOOT_CPU_PLUGIN": "/gone.so"}, [site(tmp_path)])
    assert str(caught.value) == (
        "no PJRT plugin for the CPU; tried, in order:\n  /gone.so (CUDABOOT_CPU_PLUGIN=/gone.so)"
    )


def test_the_first_cpu_package_wins_and_an_empty_variable_is_unset(tmp_path: Path) -> None:
    second, first = put(site(tmp_path) / LAMMPS), put(site(tmp_path, "b") / XLA)
    folders = [site(tmp_path), site(tmp_path, "b")]

    assert find_cpu_plugin({"CUDABOOT_CPU_PLUGIN": ""}, folders).path == first
    first.unlink()
    assert find_cpu_plugin(NO_VARIABLES, folders).path == second


def test_no_cpu_plugin_lists_every_place(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError) as caught:
        find_cpu_plugin(NO_VARIABLES, [site(tmp_path)])

    assert str(caught.value).splitlines()[1:] == [
        f"  {site(tmp_path) / XLA} (package xla-cpu-pjrt)",
        f"  {site(tmp_path) / LAMMPS} (package lammps-jax-pjrt-cpu)",
    ]


def test_the_variable_for_cuda_stands_alone(tmp_path: Path) -> None:
    cuda(venv(tmp_path), 12)

    with pytest.raises(ToolMissingError, match=r"in order:\n  /gone.so \(PJRT_PLUGIN=/gone.so\)$"):
        find_cuda_plugin({"PJRT_PLUGIN": "/gone.so"}, tmp_path, [], None)


@pytest.mark.parametrize("python", ["3.10", "3.14"])
def test_the_projects_own_plugin_wins_under_any_python(tmp_path: Path, python: str) -> None:
    cuda(site(tmp_path), 13)
    own = cuda(venv(tmp_path, python), 12)
    found = find_cuda_plugin(NO_VARIABLES, tmp_path, [site(tmp_path)], None)

    assert (found.path, found.found_via) == (own, "the project's .venv")


def test_then_comes_the_running_interpreter(tmp_path: Path) -> None:
    there = cuda(site(tmp_path), 13)
    found = find_cuda_plugin(NO_VARIABLES, tmp_path, [site(tmp_path)], None)

    assert (found.path, found.found_via) == (there, "the running interpreter's packages")


@pytest.mark.parametrize(
    ("driver", "major"), [(None, 13), (13000, 13), (12090, 12), (11040, 12), (14010, 13)]
)
def test_the_newest_that_the_driver_supports_comes_first(
    tmp_path: Path, driver: int | None, major: int
) -> None:
    for offered in (12, 13):
        cuda(venv(tmp_path), offered)

    assert find_cuda_plugin(NO_VARIABLES, tmp_path, [], driver).path.parent.name == f"xla_cuda{major}"


def test_the_newest_python_of_a_venv_comes_first(tmp_path: Path) -> None:
    for python in ("3.9", "3.12"):
        cuda(venv(tmp_path, python), 12)

    assert "python3.12" in str(find_cuda_plugin(NO_VARIABLES, tmp_path, [], None).path)


def test_no_cuda_plugin_lists_every_place(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError) as caught:
        find_cuda_plugin(NO_VARIABLES, tmp_path, [site(tmp_path)], None)

    plugin = "jax_plugins/xla_cuda*/xla_cuda_plugin.so"
    assert str(caught.value).splitlines()[1:] == [
        f"  {tmp_path}/.venv/lib/python3.*/site-packages/{plugin} (the project's .venv)",
        f"  {site(tmp_path)}/{plugin} (the running interpreter's packages)",
    ]


def test_the_projects_iree_compiler_wins_over_the_path(tmp_path: Path) -> None:
    on_path = put(tmp_path / "bin/iree-compile")
    environ = {"PATH": f"/nowhere:{on_path.parent}"}

    assert find_iree_compile(environ, tmp_path / "project").path == on_path
    own = put(tmp_path / "project/.venv/bin/iree-compile")
    assert find_iree_compile(environ, tmp_path / "project").path == own


def test_no_iree_compiler_lists_venv_and_path(tmp_path: Path) -> None:
    with pytest.raises(
        ToolMissingError, match=r"no iree-compile; (?s:.*)\.venv\)\n  /one/iree-compile \(PATH\)$"
    ):
        find_iree_compile({"PATH": "/one"}, tmp_path)


def test_the_compiler_says_what_it_is() -> None:
    found = find_compiler({"PATH": os.defpath})

    assert found.path.name == "gcc"
    assert re.search(r"gcc.*\d+\.\d+", found.version or "")


def test_no_compiler_names_path_and_package() -> None:
    with pytest.raises(
        ToolMissingError, match=r"no C compiler 'gcc' in PATH='/nowhere'; .*`apt install gcc libc6-dev`"
    ):
        find_compiler({"PATH": "/nowhere"})


def test_the_package_that_a_file_came_with(tmp_path: Path) -> None:
    plugin = put(site(tmp_path) / XLA)
    info = site(tmp_path) / "xla_cpu_pjrt-0.0.1.dist-info"
    put(info / "RECORD").write_text(f"{XLA},sha256=x,1\nxla_plugins/__init__.py,,\n")
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xla-cpu-pjrt\nVersion: 0.0.1\n\nVersion: 9\n"
    )
    owner = distribution_of(plugin)

    assert owner is not None
    assert (owner.name, owner.version) == ("xla-cpu-pjrt", "0.0.1")
    assert find_cpu_plugin(NO_VARIABLES, [site(tmp_path)]).version == "0.0.1"


def test_a_program_belongs_to_the_package_beside_its_bin(tmp_path: Path) -> None:
    program = put(tmp_path / ".venv/bin/iree-compile")
    info = venv(tmp_path) / "iree_base_compiler-3.13.0.dist-info"
    put(info / "RECORD").write_text("../../../bin/iree-compile,sha256=x,1\n")
    (info / "METADATA").write_text("Name: iree-base-compiler\nVersion: 3.13.0\n")

    assert find_iree_compile({"PATH": ""}, tmp_path).version == "3.13.0"
    assert distribution_of(program.with_name("other")) is None


def test_a_file_of_no_package_has_no_owner(tmp_path: Path) -> None:
    assert distribution_of(put(tmp_path / "lone.so")) is None
