"""An environment of one package is made once, sees no other's packages, and what was cut off is made again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock

from pytest_cudaboot.errors import BusyError, CommandError
from pytest_cudaboot.probes import venvs
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.probes.venvs import environment_with

ENV = {"PATH": os.defpath, "PYTHONPATH": "/somebody/elses"}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """What would be run, with its environment."""
    told: list[tuple[list[str], dict[str, str]]] = []

    def run(argv: list[object], *, cwd: Path, env: dict[str, str], budget: float) -> Completed:
        words = [str(word) for word in argv]
        told.append((words, env))
        if "venv" in words:
            (cwd / words[-1]).mkdir()
        if words[-1] == "broken==1":
            raise CommandError("pip: no such version")
        return Completed(
            argv=tuple(words),
            cwd=str(cwd),
            env_changes={},
            returncode=0,
            stdout="",
            stderr="",
            seconds=budget,
        )

    monkeypatch.setattr(venvs, "run_command", run)
    return told


def test_a_package_is_installed_once(
    tmp_path: Path, commands: list[tuple[list[str], dict[str, str]]]
) -> None:
    made = [environment_with("tool==1", tmp_path / "kept", env=ENV, budget=9) for _ in range(2)]

    assert made == [tmp_path / "kept/tool==1"] * 2
    assert [words[1:3] for words, _ in commands] == [["-m", "venv"], ["-m", "pip"]]
    assert commands[1][0][0] == str(tmp_path / "kept/tool==1/bin/python")


def test_nobody_elses_packages_are_seen(
    tmp_path: Path, commands: list[tuple[list[str], dict[str, str]]]
) -> None:
    environment_with("tool==1", tmp_path, env=ENV, budget=9)

    assert [env for _, env in commands] == [{"PATH": os.defpath}] * 2


def test_what_was_cut_off_is_made_again(
    tmp_path: Path, commands: list[tuple[list[str], dict[str, str]]]
) -> None:
    for _ in range(2):
        with pytest.raises(CommandError, match="no such version"):
            environment_with("broken==1", tmp_path, env=ENV, budget=9)

    assert len(commands) == 4


def test_somebody_who_does_not_finish_is_waited_for_as_long_as_there_is_time(
    tmp_path: Path, commands: list[tuple[list[str], dict[str, str]]]
) -> None:
    lock = tmp_path / "tool==1.lock"

    with (
        FileLock(lock),
        pytest.raises(
            BusyError,
            match=rf"installing tool==1 for more than 0.05 s: pid {os.getpid()} .*tool==1.lock; wait",
        ),
    ):
        environment_with("tool==1", tmp_path, env=ENV, budget=0.05)

    assert commands == []
