"""A kernel, or a container, that can not keep processes in hand is named before anything is started."""

from __future__ import annotations

import os
from errno import ENOSYS
from pathlib import Path

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.probes.kernel import require


def refuse(_pid: int) -> int:
    raise OSError(ENOSYS, os.strerror(ENOSYS))


def test_this_machine_will_do() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    require()

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"{tmp_path}/{os.getpid()}/stat can not be read \(No such file"):
        require(tmp_path)


def test_a_table_of_another_namespace_is_none(tmp_path: Path) -> None:
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "stat").write_text("1 (somebody) S")

    with pytest.raises(UsageError, match="shows the processes of another pid namespace"):
        require(tmp_path)


def test_all_that_is_missing_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(
        UsageError,
        match=r"can not be read .*; pidfd_open is refused \(Function not implemented\); it needs",
    ):
        require(tmp_path)


def test_a_python_without_handles_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(UsageError, match="this Python was built without pidfd_open"):
        require()
