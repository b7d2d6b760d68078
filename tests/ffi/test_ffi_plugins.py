"""Finding, opening and refusing plugins, and the options that a client is made with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.ffi.helpers import Child, Json, Saboteurs, build, create, invoke, tensor

DESCRIBE: Json = {"op": "describe"}
PAIR: Json = invoke("pair", [tensor(2, 3), tensor()], [6, 1])

REFUSED = {
    "other_major": "speaks PJRT API 1.0, this shim speaks major version 0",
    "short_table": "bytes) is too short for PJRT_Buffer_ToHostBuffer, which needs",
    "no_version": "its function table has 16 bytes, too few to hold even its version",
    "hole_in_table": "has no PJRT_Event_Await",
    "no_entry": "is no PJRT plugin (it has no GetPjrtApi)",
    "null_table": "GetPjrtApi returned NULL",
    "no_start": "PJRT_Plugin_Initialize: this plugin does not start",
    "no_client": "PJRT_Client_Create: No visible GPU devices.",
    "no_device": "no device is addressable",
}


@pytest.mark.parametrize("name", REFUSED)
def test_plugin_is_refused(child: Child, saboteur: Saboteurs, name: str) -> None:
    plugin = saboteur(name)

    (answer,) = child(DESCRIBE, PJRT_PLUGIN=str(plugin))

    assert answer["code"] == 1
    assert REFUSED[name] in answer["said"]
    assert name == "no_start" or str(plugin) in answer["said"]


PROGRAMS = {
    "extra_output": "the text has 2 outputs, the compiled program returns 3",
    "other_shape": "output 0: the compiled program's shape is not that of the text",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_that_is_not_its_text_is_refused(
    child: Child, saboteur: Saboteurs, modules: Path, name: str
) -> None:
    (answer,) = child(create(modules / "pair.mlir"), PJRT_PLUGIN=str(saboteur(name)))

    assert not answer["made"]
    assert PROGRAMS[name] in answer["said"]


def test_longer_buffer_is_not_copied(child: Child, saboteur: Saboteurs, modules: Path) -> None:
    _, answer = child(create(modules / "pair.mlir"), PAIR, PJRT_PLUGIN=str(saboteur("other_size")))

    assert answer["code"] == 4
    assert "output 0 size mismatch: the device has 28 bytes, caller 24" in answer["said"]


def test_plugin_that_demands_longer_arguments(child: Child, saboteur: Saboteurs, modules: Path) -> None:
    _, answer = child(create(modules / "pair.mlir"), PAIR, PJRT_PLUGIN=str(saboteur("demanding")))

    assert answer["code"] == 3
    assert "PJRT_ExecuteOptions: unexpected struct size, expected 120, got 112" in answer["said"]


@pytest.mark.parametrize("name", ["newer_minor", "no_optional"])
def test_plugin_that_is_only_different_is_fine(
    child: Child, saboteur: Saboteurs, modules: Path, name: str
) -> None:
    _, answer = child(create(modules / "pair.mlir"), PAIR, PJRT_PLUGIN=str(saboteur(name)))

    assert answer == {"code": 0, "outputs": [[1, 2, 3, 4, 5, 6], [1]], "said": ""}


def test_second_attempt_says_the_same(child: Child, modules: Path, saboteur: Saboteurs) -> None:
    op = create(modules / "pair.mlir")

    first, second = child(op, op, PJRT_PLUGIN=str(saboteur("no_client")))

    assert first == second
    assert "No visible GPU devices." in second["said"]


# ---- PJRT_PLUGIN names one file


def broken_files(folder: Path, good: Path) -> dict[str, tuple[Path, str]]:
    (folder / "text.so").write_text("no library at all, but long enough for a header" * 9)
    (folder / "cut.so").write_bytes(good.read_bytes()[:2000])
    (folder / "empty.so").write_bytes(b"")
    return {
        "missing": (folder / "nowhere.so", "cannot open shared object file: No such file or directory"),
        "folder": (folder, "cannot read file data: Is a directory"),
        "text": (folder / "text.so", "invalid ELF header"),
        "cut": (folder / "cut.so", "cut.so: truncated: it has 2000 bytes, its headers need "),
        "empty": (folder / "empty.so", "file too short"),
    }


@pytest.mark.parametrize("case", ["missing", "folder", "text", "cut", "empty"])
def test_named_file_that_does_not_open(child: Child, tiny: Path, tmp_path: Path, case: str) -> None:
    path, loader = broken_files(tmp_path, tiny)[case]

    (answer,) = child(DESCRIBE, PJRT_PLUGIN=str(path))

    assert f"PJRT_PLUGIN='{path}' can not be opened (no other place is tried):" in answer["said"]
    assert loader in answer["said"]


def test_named_file_does_not_fall_back(child: Child, tiny: Path, tmp_path: Path) -> None:
    put_plugin(tmp_path, tiny)

    (answer,) = child(DESCRIBE, cwd=tmp_path, PJRT_PLUGIN="./nowhere.so")

    assert answer["code"] == 1
    assert ".venv" not in answer["said"]


def test_bare_name_is_a_file_of_the_working_directory(child: Child, tiny: Path, tmp_path: Path) -> None:
    shutil.copy(tiny, tmp_path / "here.so")

    (answer,) = child(DESCRIBE, cwd=tmp_path, PJRT_PLUGIN="here.so")

    assert answer["facts"]["plugin"] == "./here.so"
    assert answer["facts"]["found_via"] == "PJRT_PLUGIN"


# ---- or the project's .venv is searched


def put_plugin(project: Path, plugin: Path, python: str = "python3.12", cuda: int = 12) -> Path:
    folder = project / f".venv/lib/{python}/site-packages/jax_plugins/xla_cuda{cuda}"
    folder.mkdir(parents=True)
    return Path(shutil.copy(plugin, folder / "xla_cuda_plugin.so"))


def driver_of(version: int, folder: Path) -> str:
    """A folder whose libcuda.so.1 says that it supports this CUDA version."""
    (folder / "driver.c").write_text(
        f"int cuDriverGetVersion(int *v);\nint cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}\n"
    )
    build("gcc", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1", cwd=folder)
    return str(folder)


@pytest.mark.parametrize("python", ["python3.9", "python3.10", "python3.14"])
@pytest.mark.parametrize("cuda", [12, 13])
@pytest.mark.parametrize("unset", [{}, {"PJRT_PLUGIN": ""}])
def test_project_venv_of_any_python(
    child: Child, tiny: Path, tmp_path: Path, python: str, cuda: int, unset: dict[str, str]
) -> None:
    plugin = put_plugin(tmp_path, tiny, python, cuda)

    (answer,) = child(DESCRIBE, cwd=tmp_path, env=unset)

    assert (answer["facts"]["plugin"], answer["facts"]["found_via"]) == (str(plugin), "project .venv")


@pytest.mark.parametrize(("driver", "chosen"), [(None, 13), (13000, 13), (12090, 12), (14020, 13)])
def test_highest_major_that_the_driver_supports(
    child: Child, tiny: Path, tmp_path: Path, driver: int | None, chosen: int
) -> None:
    both = {cuda: put_plugin(tmp_path, tiny, cuda=cuda) for cuda in (12, 13)}
    settings = {} if driver is None else {"LD_LIBRARY_PATH": driver_of(driver, tmp_path)}

    (answer,) = child(DESCRIBE, cwd=tmp_path, env=settings)

    assert answer["facts"]["plugin"] == str(both[chosen])
    assert answer["facts"]["cuda_driver"] == driver


def test_miss_lists_every_place(child: Child, tmp_path: Path) -> None:
    (answer,) = child(DESCRIBE, cwd=tmp_path)

    lines = answer["said"].splitlines()
    assert lines[0] == "[pjrt_ffi] pjrt_ffi_describe: no PJRT plugin found. Tried, in order:"
    for line, cuda in zip(lines[1:3], (13, 12), strict=True):
        place = f"{tmp_path}/.venv/lib/python3.*/site-packages/jax_plugins/xla_cuda{cuda}/xla_cuda_plugin.so"
        assert line == f"  {place}: cannot open shared object file: No such file or directory"
    assert "pip install jax-cuda12-pjrt" in lines[3]


def test_file_that_does_not_open_is_in_the_list(child: Child, tmp_path: Path) -> None:
    plugin = put_plugin(tmp_path, Path(__file__))

    (answer,) = child(DESCRIBE, cwd=tmp_path)

    assert f"  {plugin}: invalid ELF header\n" in answer["said"]


# ---- what describe says


def test_attributes_of_every_kind(child: Child, tiny: Path) -> None:
    (answer,) = child(DESCRIBE, PJRT_PLUGIN=str(tiny))

    facts = answer["facts"]
    assert facts["attributes"] == {
        "stablehlo_current_version": [1, 13, 3],
        "motto": 'say "tiny"\n!',
        "xla_version": 2,
        "share": 0.5,
        "tiny": True,
    }
    assert (facts["api"], facts["platform"], facts["platform_version"]) == ([0, 81], "tiny", "tiny")
    assert (facts["devices"], facts["addressable_devices"]) == (2, 2)
    assert (facts["device_kind"], facts["bytes_limit"]) == (None, None)


@pytest.mark.parametrize("room", [0, 1, 20, 300])
def test_no_room_to_describe(child: Child, tiny: Path, room: int) -> None:
    (answer,) = child({"op": "describe", "room": room}, PJRT_PLUGIN=str(tiny))

    assert answer["code"] == 1
    assert "fit into" in answer["said"] or "no room" in answer["said"]


def test_client_is_made_once(child: Child, tiny: Path, modules: Path) -> None:
    answers = child(DESCRIBE, create(modules / "pair.mlir"), DESCRIBE, PJRT_PLUGIN=str(tiny))

    assert [a["said"].count("allocator:") for a in answers] == [1, 0, 0]
