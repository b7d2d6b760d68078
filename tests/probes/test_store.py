"""Compiled modules are kept by what they were made of, and nothing that is spoilt is ever served."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pytest_cudaboot.errors import BusyError, CompileError
from pytest_cudaboot.probes.store import Miss, ModuleKey, ModuleStore, Stored, default_folder

KEY = ModuleKey(
    mlir="m" * 64, backend="cuda", chip="sm_86", flags=("--a", "--b"), version="3.13.0", commit="c" * 40
)
SPAWN = multiprocessing.get_context("spawn")


def write(path: Path) -> dict[str, Any]:
    path.write_bytes(b"module")
    return {"seconds": 1.5}


def never(path: Path) -> dict[str, Any]:
    raise AssertionError(f"{path} is compiled again")


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "modules")


def test_a_module_is_made_once(store: ModuleStore) -> None:
    made = store.fill(KEY, write)
    again = store.fill(KEY, never)

    assert (made.made, again.made) == (True, False)
    assert (again.path, again.facts, again.path.read_bytes()) == (made.path, {"seconds": 1.5}, b"module")


@pytest.mark.parametrize(
    "change",
    [
        {"mlir": "n" * 64},
        {"backend": "llvm-cpu"},
        {"chip": "sm_89"},
        {"flags": ("--a",)},
        {"version": "3.13.1"},
        {"commit": "d" * 40},
    ],
)
def test_a_change_of_any_part_of_the_key_misses(store: ModuleStore, change: dict[str, Any]) -> None:
    store.fill(KEY, write)

    assert isinstance(store.find(replace(KEY, **change)), Miss)


def test_the_clock_decides_nothing(store: ModuleStore) -> None:
    made = store.fill(KEY, write)
    for path in (made.path, made.path.parent, made.path.with_name("manifest.json")):
        os.utime(path, (0, 0))

    assert not store.fill(KEY, never).made


def test_a_flipped_byte_is_a_miss_with_a_word_and_made_again(store: ModuleStore) -> None:
    made = store.fill(KEY, write)
    made.path.write_bytes(b"modulf")

    missed = store.find(KEY)
    assert isinstance(missed, Miss)
    assert "module.vmfb is spoilt: its hash is" in missed.why
    assert store.fill(KEY, write).path.read_bytes() == b"module"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1, "sha256": "", "facts": {}}', "\udcff"])
def test_a_spoilt_manifest_is_a_miss(store: ModuleStore, text: str) -> None:
    made = store.fill(KEY, write)
    made.path.with_name("manifest.json").write_text(text, errors="surrogateescape")

    missed = store.find(KEY)
    assert isinstance(missed, Miss)
    assert "is spoilt" in missed.why


def test_an_entry_under_another_name_is_a_miss(store: ModuleStore) -> None:
    other = replace(KEY, chip="sm_90")
    store.fill(KEY, write).path.parent.rename(store.folder / other.digest)

    missed = store.find(other)
    assert isinstance(missed, Miss)
    assert f"its manifest is of {KEY.digest}" in missed.why


def test_what_fails_to_be_made_is_not_kept(store: ModuleStore) -> None:
    def half(path: Path) -> dict[str, Any]:
        path.write_bytes(b"mod")
        raise CompileError("crashed")

    with pytest.raises(CompileError, match="crashed"):
        store.fill(KEY, half)
    assert isinstance(store.find(KEY), Miss)
    assert [path.name for path in store.folder.iterdir()] == [f"{KEY.digest}.lock"]


def _die_writing(store: ModuleStore) -> None:
    def die(path: Path) -> dict[str, Any]:
        path.write_bytes(b"mod")
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    store.fill(KEY, die)


def test_a_run_that_is_killed_in_the_middle_is_in_nobodys_way(store: ModuleStore) -> None:
    killed = SPAWN.Process(target=_die_writing, args=(store,))
    killed.start()
    killed.join()

    assert killed.exitcode == -signal.SIGKILL
    assert (store.folder / f"{KEY.digest}.partial").is_dir()
    assert isinstance(store.find(KEY), Miss)
    assert store.fill(KEY, write, patience=5).path.read_bytes() == b"module"


def _race(store: ModuleStore, start: Any, meeting: Any, log: Path) -> None:
    def logged(path: Path) -> dict[str, Any]:
        with log.open("a") as file:
            file.write("made\n")
        # Were both in here, they would meet.
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(0.5)
        return write(path)

    start.wait()
    store.fill(KEY, logged)


def test_of_two_runs_that_race_one_compiles(store: ModuleStore, tmp_path: Path) -> None:
    log = tmp_path / "log"
    barriers = (SPAWN.Barrier(2), SPAWN.Barrier(2))
    racers = [SPAWN.Process(target=_race, args=(store, *barriers, log)) for _ in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert [racer.exitcode for racer in racers] == [0, 0]
    assert log.read_text() == "made\n"


def test_patience_with_another_process_ends(store: ModuleStore) -> None:
    store.folder.mkdir()
    with (
        FileLock(store.folder / f"{KEY.digest}.lock"),
        pytest.raises(
            BusyError, match=rf"has been making .* for more than 0\.1 s: pid {os.getpid()} .*\.lock; wait"
        ),
    ):
        store.fill(KEY, never, patience=0.1)


def test_a_folder_that_can_not_be_written_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CompileError, match=r"no module can be kept in .*CUDABOOT_MODULE_CACHE$"):
        ModuleStore(tmp_path / "file").fill(KEY, write)


def test_what_is_kept_can_be_listed(store: ModuleStore) -> None:
    store.fill(KEY, write)
    spoilt = store.fill(replace(KEY, chip="sm_80"), write)
    spoilt.path.unlink()

    assert [entry.key for entry in store.entries()] == [KEY]
    assert list(ModuleStore(store.folder / "gone").entries()) == []


def test_the_manifest_tells_the_key_in_the_clear(store: ModuleStore) -> None:
    made = store.fill(KEY, write)
    told = json.loads(made.path.with_name("manifest.json").read_text())

    assert (told["key"]["chip"], told["key"]["flags"], told["sha256"]) == (
        "sm_86",
        ["--a", "--b"],
        made.sha256,
    )
    assert isinstance(store.find(KEY), Stored)


def test_a_variable_names_the_folder(tmp_path: Path) -> None:
    assert default_folder({"CUDABOOT_MODULE_CACHE": str(tmp_path)}) == tmp_path
    assert default_folder({"CUDABOOT_MODULE_CACHE": ""}).name == "modules"
