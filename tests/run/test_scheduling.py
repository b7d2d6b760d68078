"""Gangs and lost places, in whole runs on simulated boxes: what must not be lost, and what must not wait for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.boxes.box import BoxGate
from tests.boxes.conftest import gate

__all__ = ["gate"]

GANGS = """
import os, pytest
from pathlib import Path
from pytest_cudaboot.device.cuda import visible_devices
from pytest_cudaboot.probes.lease import obstacles, lease_folder

def seen():
    return [device.uuid for device in visible_devices()]

@pytest.mark.spec("a.warm")
def test_warm(lowerer, gpu, gpus):
    assert lowerer.call("prove") == [gpu.uuid]
    assert len(gpus) == 4

@pytest.mark.spec("a.pair")
def test_pair(lowerer, gpus, run, evidence):
    uuids = [card.uuid for card in gpus]
    assert len(uuids) == 2
    assert lowerer.call("prove") == uuids
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    assert run(["python3", "-c", code]).stdout.strip() == ",".join(uuids)
    assert {one.uuid for one in obstacles(uuids, folder=lease_folder(os.environ))} == set(uuids)
    evidence.measure(gang=uuids)

@pytest.mark.spec("a.all")
def test_all(lowerer, gpus):
    assert lowerer.call("prove") == [card.uuid for card in gpus] and len(gpus) == 4

@pytest.mark.spec("a.after")
def test_after(lowerer, gpu, measure):
    assert lowerer.call("prove") == [gpu.uuid]
    measure(card=gpu.uuid)
"""


def table(name: str, on: str, *, cards: int = 1, needs: str = "") -> str:
    when = f'when = ["gpus:{cards}"]\n' if cards > 1 else ""
    return (
        f'[a.{name}]\nkind = "step"\ntitle = "T"\nheading = "H"\non = "{on}"\nlowerers = ["xla"]\n'
        f"needs = [{needs}]\n{when}\n"
    )


CATALOG = "".join(
    (
        table("warm", "each"),
        table("pair", "any", cards=2, needs='"a.warm"'),
        table("all", "any", cards=4, needs='"a.warm"'),
        table("after", "each", needs='"a.pair", "a.all"'),
    )
)


def test_a_gang_has_its_cards_to_itself_and_gives_them_back(gate: BoxGate) -> None:
    """Every card has a warm process before, and a process of its own after; none sees more than it should."""
    gate.on("invented-eight").suite(GANGS, CATALOG)
    gate.ran(gpus="0-3")

    assert set(gate.outcomes.values()) == {"holds"}
    assert len(gate.cards_of("a.after")) == 4
    cells = {spec: {gpu["uuid"] for gpu in gate.cells[spec]["gpus"]} for spec in ("a.pair", "a.all")}
    assert cells["a.all"] == set(gate.uuids[:4])
    assert cells["a.pair"] == set(gate.cells["a.pair"]["measurements"]["gang"])
    several = [cards for cards in gate.touched if len(cards) > 1]
    assert sorted(map(len, several)) == [2, 4]


BADGES = """
import os
from pathlib import Path
def pytest_sessionstart():
    Path(os.environ.get("CUDABOOT_LANE", "controller")).write_text(str(os.getpid()))
"""
DYING = """
import os, pytest, signal
from pathlib import Path

@pytest.mark.spec("a.lead")
def test_lead(lowerer, gpus):
    assert len(gpus) == 2
    os._exit(3)

@pytest.mark.spec("a.partner")
def test_partner(gpus, lowerer, measure):
    measure(cards=len(gpus))
    (partner,) = {int(Path(card.uuid).read_text()) for card in gpus} - {os.getpid()}
    os.kill(partner, signal.SIGKILL)

@pytest.mark.spec("a.after")
def test_after(gpu, lowerer, measure):
    measure(card=gpu.uuid)
"""


def test_a_lead_or_a_partner_that_dies_holds_no_card(gate: BoxGate) -> None:
    gate.on("two-h200").suite(
        DYING, table("lead", "any", cards=2) + table("partner", "any", cards=2) + table("after", "each")
    )
    (gate.path / "conftest.py").write_text(BADGES)
    gate.ran(gpus="0,1")

    assert gate.outcomes["a.lead"] == "broken", gate.cells["a.lead"]["reason"]
    assert gate.cells["a.lead"]["cause"] == "crash"
    assert gate.outcomes["a.partner"] == "holds"
    assert gate.cards_of("a.after") == dict.fromkeys(gate.uuids, "holds")


SHORT = """
import pytest
@pytest.mark.spec("a.four")
def test_four(measure): measure(x=1)
@pytest.mark.spec("a.one")
def test_one(gpu, measure): measure(x=1)
"""


@pytest.mark.parametrize(
    ("words", "gpus", "reason"),
    [
        ((), "0,1", "4 cards are needed, and there are 2"),
        (("-n", "0"), "0", "4 cards are needed, and without workers there is one process for one"),
    ],
    ids=["workers", "in-process"],
)
def test_what_needs_more_cards_than_there_are_is_not_run(
    gate: BoxGate, words: tuple[str, ...], gpus: str, reason: str
) -> None:
    gate.on("two-h200").suite(
        SHORT, table("four", "any", cards=4).replace('lowerers = ["xla"]\n', "") + table("one", "each")
    )
    gate.ran(*words, "--cudaboot-require", "gpus:4", gpus=gpus)

    assert gate.outcomes == {"a.four": "not-run", "a.one": "holds"}
    assert gate.cells["a.four"]["reason"] == reason


MORTAL = """
import os, pytest
@pytest.mark.spec("a.bound")
@pytest.mark.parametrize("n", range(12))
def test_bound(n, gpu, measure):
    measure(x=1)
    if gpu.index == 0:
        os._exit(1)
@pytest.mark.spec("a.free")
def test_free(gpu, measure): measure(card=gpu.uuid)
"""


def test_a_card_whose_worker_dies_again_and_again_is_given_up_by_name(gate: BoxGate) -> None:
    """The other card's items and those of any card go on."""
    gate.on("two-h200").suite(MORTAL, table("bound", "each") + table("free", "any"))
    (gate.path / "conftest.py").write_text(
        "from pytest_cudaboot.run import places\nplaces.RESTARTS_PER_WORKER = 2\n"
    )
    gate.ran(gpus="0,1")

    lost, spared = gate.uuids
    assert gate.cards_of("a.bound") == {lost: "broken", spared: "holds"}
    why = "its worker died 3 times"
    assert f"{lost} is given up: {why}" in gate.verdict["reasons"]
    stopped = [record["reason"] for record in gate.records("blocked")]
    assert stopped == [f"no worker for '{lost}'; {why}"] * 9
    assert gate.outcomes["a.free"] == "holds"
    assert Path(gate.out / "ledger.jsonl").exists()


STOPPED = """
import os, signal
from pathlib import Path
from pytest_cudaboot.run import watchdog
from pytest_cudaboot.run.worker import Worker
watchdog.TICK, watchdog.GRACE, watchdog.KILL_SECONDS, watchdog.LEAVE_SECONDS = 0.1, 0.4, 0.5, 1.0
leave = Worker.leave
def stopped_once(self):
    if not Path("stopped").exists():
        Path("stopped").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    leave(self)
Worker.leave = stopped_once
"""
GANG = """
import pytest
@pytest.mark.spec("a.pair")
def test_pair(lowerer, gpus): assert lowerer.call("prove") == [card.uuid for card in gpus]
"""


def test_a_partner_that_is_stopped_as_it_leaves_is_killed_and_the_gang_goes_on(gate: BoxGate) -> None:
    gate.on("two-h200").suite(GANG, table("pair", "any", cards=2))
    (gate.path / "conftest.py").write_text(STOPPED)
    gate.ran(gpus="0,1")

    assert gate.outcomes == {"a.pair": "holds"}
    assert any("did not end its leaving of its card within 1 s" in why for why in gate.verdict["reasons"])


OTHERWISE = """
import os, pytest
from pathlib import Path

first = os.environ.get("CUDABOOT_LANE") is None or not Path(os.environ["CUDABOOT_LANE"]).exists()
Path(os.environ.get("CUDABOOT_LANE", "controller")).touch()

@pytest.mark.spec("a.free")
@pytest.mark.parametrize("n", range(3 if first else 4))
def test_free(n, gpu, measure): measure(card=gpu.uuid)

@pytest.mark.spec("a.bound")
@pytest.mark.parametrize("n", range(3))
def test_bound(n, gpu, measure):
    measure(x=1)
    if gpu.index == 0:
        os._exit(1)
"""


def test_a_replacement_that_collects_something_else_gets_nothing(gate: BoxGate) -> None:
    """Its indices would mean other tests; what its card alone could do is not run, and the rest goes on."""
    tables = table("free", "any"), table("bound", "each")
    gate.on("two-h200").suite(OTHERWISE, "".join(tables).replace('lowerers = ["xla"]\n', ""))
    gate.ran(gpus="0,1")

    lost, spared = gate.uuids
    why = "its new worker collected other tests"
    assert f"{lost} is given up: {why}" in gate.verdict["reasons"]
    assert [record["reason"] for record in gate.records("blocked")] == [f"no worker for '{lost}'; {why}"] * 2
    assert gate.cards_of("a.bound") == {lost: "broken", spared: "holds"}
    assert gate.outcomes["a.free"] == "holds"


EARLY = """
import os
from pathlib import Path
lane = os.environ.get("CUDABOOT_LANE", "")
if lane.startswith("GPU") and not Path(lane).exists():
    Path(lane).touch()
    os._exit(1)
"""


def test_workers_that_die_before_their_first_collection_are_replaced(gate: BoxGate) -> None:
    gate.on("two-h200").suite(SHORT.replace("four", "each"), "")
    tables = table("each", "any"), table("one", "each")
    (gate.path / "catalog.toml").write_text("".join(tables).replace('lowerers = ["xla"]\n', ""))
    (gate.path / "conftest.py").write_text(EARLY)
    gate.ran(gpus="0,1")

    assert gate.cards_of("a.one") == dict.fromkeys(gate.uuids, "holds")
    assert gate.outcomes["a.each"] == "holds"
