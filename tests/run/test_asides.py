"""Cards that are lost to a run: who comes after a killed worker looks for what it has left on its card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CardAsideError
from pytest_cudaboot.probes.process import ProcessGroup, start_process
from pytest_cudaboot.run import asides
from pytest_cudaboot.run.asides import Asides

CARD = "GPU-a"


@pytest.fixture
def orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessGroup]:
    monkeypatch.setattr(asides, "PATIENCE", 0.05)
    group = start_process(["sleep", "300"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    yield group
    group.kill()


def test_an_empty_card_can_be_had(tmp_path: Path) -> None:
    Asides(tmp_path).enter(CARD)

    assert Asides(tmp_path).reason(CARD) is None


def test_a_replacement_does_not_take_a_card_with_an_orphan(tmp_path: Path, orphan: ProcessGroup) -> None:
    Asides(tmp_path).started(CARD, orphan.pid)

    left = rf"still alive after SIGKILL: {orphan.pid} \((sleep|setpriv|python\S*), state [SR]\)"
    with pytest.raises(CardAsideError, match=rf"^GPU-a is set aside for the rest of this run: {left}$"):
        Asides(tmp_path).enter(CARD)
    assert re.fullmatch(left, Asides(tmp_path).reason(CARD) or "")


def test_a_card_stays_set_aside(tmp_path: Path) -> None:
    Asides(tmp_path).set_aside(CARD, "the first reason")
    Asides(tmp_path).set_aside(CARD, "another")

    with pytest.raises(CardAsideError, match="the first reason"):
        Asides(tmp_path).enter(CARD)
    Asides(tmp_path).enter("GPU-b")


def test_a_number_that_came_to_mean_another_process_is_nobodys(tmp_path: Path, orphan: ProcessGroup) -> None:
    (tmp_path / f"{CARD}.device").write_text(f"{orphan.pid} 1")

    Asides(tmp_path).enter(CARD)


def test_what_has_ended_is_no_orphan(tmp_path: Path, orphan: ProcessGroup) -> None:
    Asides(tmp_path).started(CARD, orphan.pid)
    orphan.kill()

    Asides(tmp_path).enter(CARD)
