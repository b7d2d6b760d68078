"""Second opinions on simulated boxes: a failure of the toolchain's, of a card's, of nobody's, and with one card."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.ledger_lines import read_ledger
from pytest_cudaboot.rules.verdict import judge
from tests.boxes.box import BoxGate, Done, steps
from tests.boxes.stormy import counting
from tests.run.gate import Json

TESTS = """
import os, signal
from pathlib import Path
import pytest
from pytest_cudaboot.errors import NumericError

def first(name):
    mark = Path(__file__).with_name(name)
    was = mark.exists()
    mark.touch()
    return not was

@pytest.mark.spec("a.toolchain")
def test_toolchain(lowerer):
    with Path(__file__).with_name("pids").open("a") as log:
        log.write(f"{lowerer.call('prove')[0]} {lowerer._process.pid}\\n")
    raise NumericError("far off")

@pytest.mark.spec("a.card")
def test_card(lowerer):
    here, bad = lowerer.call("prove")[0], Path(__file__).with_name("bad")
    if not bad.exists():
        bad.write_text(here)
    assert here != bad.read_text(), "this card"

@pytest.mark.spec("a.each")
def test_each(lowerer):
    assert lowerer.call("prove") != [os.environ["BAD_CARD"]], "this card"

@pytest.mark.spec("a.flaky")
def test_flaky(lowerer):
    lowerer.call("prove")
    assert not first("flaky"), "the first time"

@pytest.mark.spec("a.worker")
def test_worker(lowerer):
    lowerer.call("prove")
    assert not first("worker"), "the first time"
    if first("death"):
        os.kill(os.getpid(), signal.SIGKILL)
    pytest.fail("and after its death")

@pytest.mark.spec("a.gang")
def test_gang(lowerer, gpus):
    assert sorted(lowerer.call("prove")) != sorted(gpu.uuid for gpu in gpus), "these cards"

@pytest.mark.spec("a.host")
def test_host(measure):
    measure(figure=1)
    assert not first("host"), "never asked again"

@pytest.mark.spec("a.claim")
def test_claim(lowerer):
    lowerer.call("prove")
    assert not first("claim"), "never asked again"
"""
CLAIM = '\n[a.claim]\nkind = "claim"\ntitle = "T"\nheading = "H"\non = "any"\nlowerers = ["xla"]\n'
EXECUTING = ("toolchain", "card", "flaky", "worker")
CATALOG = steps(**dict.fromkeys(EXECUTING, "any xla"), each="each xla", gang="any xla", host="host") + CLAIM
CATALOG = CATALOG.replace("[a.gang]\n", '[a.gang]\nwhen = ["gpus:2"]\n')


def put_on(gate: BoxGate, cards: int) -> BoxGate:
    box = counting(cards=cards)
    gate.on(box, BAD_CARD=box.cards[0].uuid)
    return gate


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> tuple[BoxGate, Done]:
    """One run on two cards of a kind, for all that is said of it."""
    gate = put_on(BoxGate(tmp_path_factory.mktemp("two"), libraries), 2).suite(TESTS, CATALOG)
    return gate, gate.ran("--junitxml", "junit.xml", gpus="all")


def broken(gate: BoxGate) -> dict[str, Json]:
    return {cell["spec"][2:]: cell for cell in gate.verdict["cells"] if cell["outcome"] == "broken"}


def processes(gate: BoxGate) -> list[list[str]]:
    """Card and device process of each run of the test that always fails."""
    return [line.split() for line in (gate.path / "pids").read_text().splitlines()]


def said(cell: Json) -> list[tuple[str, str]]:
    return [(one["place"], one["status"]) for one in cell["evidence"].get("attempts", ())]


def test_whom_to_blame_on_two_cards(two: tuple[BoxGate, Done]) -> None:
    cells = broken(two[0])

    assert {name: (cell["blame"], cell["attempts"]) for name, cell in cells.items()} == {
        "toolchain": ("toolchain", 3),
        "card": ("card", 3),
        "each": ("card", 2),
        "flaky": ("flaky", 2),
        "worker": ("toolchain", 3),
        "gang": ("undecidable", 2),
        "host": ("toolchain", 1),
        "claim": ("undecidable", 1),
    }
    assert said(cells["card"]) == [("first", "failed"), ("same", "failed"), ("sibling", "passed")]
    assert said(cells["each"]) == [("first", "failed"), ("same", "failed")]
    assert said(cells["flaky"]) == [("first", "failed"), ("same", "passed")]
    assert said(cells["worker"]) == [("first", "failed"), ("same", "crashed"), ("sibling", "failed")]
    assert said(cells["gang"]) == [("first", "failed"), ("same", "failed")]
    assert two[0].verdict["verdict"] == "reject"


def test_a_gang_has_its_cards_again(two: tuple[BoxGate, Done]) -> None:
    first, again = broken(two[0])["gang"]["evidence"]["attempts"]

    assert again["cards"] == [*first["cards"]] or again["cards"] == [*reversed(first["cards"])]
    assert again["reason"].startswith("these cards")


def test_second_runs_are_watched_as_first_ones_are(two: tuple[BoxGate, Done]) -> None:
    for cell in (broken(two[0])[name] for name in ("toolchain", "each", "gang")):
        for run in cell["evidence"]["attempts"][1:]:
            assert sorted(run["hardware"]) == sorted(run["cards"])
            assert {facts["temperature_c"] for facts in run["hardware"].values()} == {41}


def test_a_sibling_is_another_card(two: tuple[BoxGate, Done]) -> None:
    first, same, sibling = (card for card, _ in processes(two[0]))

    assert first == same != sibling


def test_pytest_counts_each_test_once(two: tuple[BoxGate, Done]) -> None:
    gate, done = two
    junit = (gate.path / "junit.xml").read_text()

    assert "8 failed, 1 passed" in done.stdout  # one a test, and the other card
    assert len(re.findall("<testcase ", junit)) == 9
    assert f"test_suite.py::test_flaky[xla], run again on {gate.uuid(0)[:6]}" in done.stdout
    assert len(gate.records("result")) == 9


def test_a_replay_judges_to_the_same_words(two: tuple[BoxGate, Done]) -> None:
    gate = two[0]
    lines = (gate.out / "ledger.jsonl").read_text().splitlines()

    assert judge(load_catalog(gate.path / "catalog.toml"), read_ledger(lines)) == gate.verdict


def test_with_one_card_it_is_undecidable_or_luck(gate: BoxGate) -> None:
    put_on(gate, 1).suite(TESTS, CATALOG)
    done = gate.ran("-n", "0", "-k", "toolchain or flaky or each", gpus="all")

    assert {name: (cell["blame"], cell["attempts"]) for name, cell in broken(gate).items()} == {
        "toolchain": ("undecidable", 2),
        "each": ("undecidable", 2),
        "flaky": ("flaky", 2),
    }
    assert (done.returncode, "3 failed" in done.stdout) == (1, True)
    (_, first), (_, again) = processes(gate)
    assert first != again  # what was warm has been used by others


def test_nobody_is_asked_after_a_stop(gate: BoxGate) -> None:
    put_on(gate, 1).suite(TESTS, CATALOG)
    done = gate.ran("-x", "-k", "toolchain", gpus="all")

    assert [cell["attempts"] for cell in broken(gate).values()] == [1]
    assert "run again" not in done.stdout


def test_what_a_card_does_under_a_second_run_is_against_it(gate: BoxGate) -> None:
    """The first failure might have been anybody's; under the second one the card raises an error of its own."""
    tests = """
import os, pathlib, pytest
AT = pathlib.Path(os.environ["CUDABOOT_BOX_ROOT"], "at")

@pytest.mark.spec("a.first")
def test_first(gpu, evidence):
    evidence.act()
    evidence.ran_on("cuda", [gpu.uuid])
    mark = AT / ("gone" if (AT / "once").exists() else "once")
    mark.touch()
    assert not mark, "again"
"""
    gate.on(counting("gone xid 94")).suite(tests, steps(first="any"))
    done = gate.ran("-n", "0", gpus="all")
    (suspect,) = gate.verdict["box"]["suspect"]
    _, again = broken(gate)["first"]["evidence"]["attempts"]

    assert (done.returncode, broken(gate)["first"]["blame"]) == (11, "card")
    assert (suspect["counter"], suspect["aside"], suspect["nodeid"]) == ("xid.94", True, again["nodeid"])
    assert again["hardware"][gate.uuid(0)]["against"] == "card"
