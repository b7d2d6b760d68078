"""What happens to a card under a test ends as the policy says, through the real `pynvml` and a made sysfs tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.boxes.box import REPLAYED, BoxGate, steps
from tests.boxes.stormy import BRIDGES, FIRST, MARK, SECOND, boot, counting, happening, hardware

AER = '(ROOT / "sys/bus/pci/devices/{}/aer_dev_{}").write_text("{}\\n")'
LOG = '(ROOT / "dev/kmsg").open("a").write("4,99,1,-;{}\\n")'


def taken_out(gate: BoxGate, counter: str) -> str:
    """The first card gets nothing more, and the verdict's first reason says which it is, where, and by what counter."""
    suspect = gate.verdict["box"]["suspect"]
    reason = str(gate.verdict["reasons"][0])

    assert (gate.verdict["exit"], gate.verdict["verdict"]) == (11, "hardware suspect")
    assert [(record["counter"], record["pci"], record["aside"]) for record in suspect] == [
        (counter, "00000000:01:00.0", True)
    ]
    assert reason.startswith(f"card {FIRST} at 00000000:01:00.0: ")
    assert gate.cards_of("a.bound")[FIRST] == "not-run"
    assert "quarantined: " in gate.records("blocked")[0]["reason"]
    assert hardware(gate, "a.first")["against"] == "card"
    return reason


def goes_on(gate: BoxGate) -> None:
    """Nothing speaks against anything: such a run would be accepted, were it no replay."""
    assert gate.verdict["reasons"] == [REPLAYED]
    assert gate.outcomes == {"a.first": "holds", "a.bound": "holds", "a.free": "holds"}
    assert "suspect" not in gate.verdict["box"]


def test_a_storm_on_the_card(gate: BoxGate) -> None:
    happening(gate, counting("storm 176 5000", cards=2), MARK.format("storm"))

    reason = taken_out(gate, "pcie.bad_tlp")
    assert ": pcie.bad_tlp +5000, " in reason
    assert reason.endswith("; go on with --gpus 00000000:02:00.0")
    assert gate.cards_of("a.bound")[SECOND] == "holds"
    assert gate.cards_of("a.free") == {SECOND: "holds"}
    assert hardware(gate, "a.first")["added"] == {"pcie.bad_tlp": 5000}


def test_a_storm_that_only_its_bridge_counts(gate: BoxGate) -> None:
    happening(gate, counting(), AER.format("0000:00:01.0", "correctable", "RxErr 3\\nBadTLP 700"))

    assert "--gpus" not in taken_out(gate, "aer.BadTLP@0000:00:01.0")
    assert hardware(gate, "a.first")["added"] == {
        "aer.RxErr@0000:00:01.0": 3,
        "aer.BadTLP@0000:00:01.0": 700,
    }


def test_an_xid_of_the_device(gate: BoxGate) -> None:
    happening(gate, counting("gone xid 94"), MARK.format("gone"), fails='assert not "the data"')
    cell = gate.cells["a.first"]

    assert (cell["outcome"], cell["blame"]) == ("broken", "card")
    assert (gate.verdict["exit"], gate.verdict["verdict"]) == (11, "hardware suspect")
    assert gate.verdict["reasons"][0].startswith(f"card {FIRST} at 00000000:01:00.0: XID 94 under ")


def test_an_xid_of_the_application(gate: BoxGate) -> None:
    happening(gate, counting("fault xid 31"), MARK.format("fault"), fails='assert not "an address"')
    cell = gate.cells["a.first"]

    assert (cell["outcome"], cell["blame"]) == ("broken", "toolchain")
    assert (gate.verdict["exit"], gate.verdict["verdict"]) == (1, "reject")
    assert hardware(gate, "a.first")["xids"] == [31]
    assert "suspect" not in gate.verdict["box"]


def test_a_lost_card(gate: BoxGate) -> None:
    happening(gate, counting("gone lost 1"), MARK.format("gone"))

    assert ": the card is lost under " in taken_out(gate, "card.lost")


def test_a_fatal_error_of_the_bridge_in_the_log(gate: BoxGate) -> None:
    line = "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer"
    happening(gate, counting(), LOG.format(line))

    taken_out(gate, "log.fatal")
    assert hardware(gate, "a.first")["log"] == [line]


NOTHING = {
    "few": MARK.format("few"),
    "logged": LOG.format("mce: [Hardware Error]: Machine check events logged"),
    "capped": MARK.format("capped"),
    "figures": MARK.format("later"),
}
CLEAN = """
import os, pathlib, pytest
ROOT = pathlib.Path(os.environ["CUDABOOT_BOX_ROOT"])
"""
ONE = """
@pytest.mark.spec("a.{name}")
def test_{name}(gpu, evidence):
    evidence.act()
    evidence.ran_on("cuda", [gpu.uuid])
    {what}
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> BoxGate:
    """One run in which all happens to a card that speaks against nothing, each under a test of its own."""
    gate = BoxGate(tmp_path_factory.mktemp("clean"), libraries)
    gate.on(counting("few 176 5", "capped clocks 4", "capped power 300000"))
    tests = "".join(ONE.format(name=name, what=what) for name, what in NOTHING.items())
    gate.suite(CLEAN + tests, steps(**dict.fromkeys(NOTHING, "each")))
    boot(gate)
    gate.ran("-n", "0", gpus="all")
    return gate


def test_what_is_usual_decides_nothing(clean: BoxGate) -> None:
    """Such a run would be accepted, were it no replay."""
    assert clean.verdict["reasons"] == [REPLAYED]
    assert clean.outcomes == {f"a.{name}": "holds" for name in NOTHING}
    assert "suspect" not in clean.verdict["box"]


def test_a_few_errors_are_no_storm(clean: BoxGate) -> None:
    assert hardware(clean, "a.few")["added"] == {"pcie.bad_tlp": 5}


def test_a_corrected_memory_error_in_the_log(clean: BoxGate) -> None:
    assert "log" not in hardware(clean, "a.logged")


def test_power_capping(clean: BoxGate) -> None:
    assert hardware(clean, "a.capped")["power_w"] > 100


def test_figures_of_a_clean_run(clean: BoxGate) -> None:
    figures = hardware(clean, "a.figures")

    assert {name: figures[name] for name in ("energy_j", "temperature_c", "memory_mib", "moved_gb")} == {
        "energy_j": 2.5,
        "temperature_c": 41,
        "memory_mib": 4,
        "moved_gb": 3.0,
    }
    assert clean.verdict["box"]["unobservable"] == {FIRST: []}
    assert len(clean.verdict["catalog"]["hardware_sha256"]) == 64


def test_what_a_card_does_not_answer_is_listed(gate: BoxGate) -> None:
    mute = replace(counting(), cards=(replace(counting().cards[0], counter=("176 5",), bridge=()),))
    happening(gate, mute, "pass")

    goes_on(gate)
    missing = gate.verdict["box"]["unobservable"][FIRST]
    assert {"pcie.replay", "ecc.uncorrected", "temperature_c", "aer"} <= set(missing)
    assert "pcie.bad_tlp" not in missing


def test_a_storm_on_a_bridge_above_several_cards_takes_none_out(gate: BoxGate) -> None:
    """The box is suspect, and no card of it in particular."""
    box = counting(cards=2)
    shared = replace(box, cards=tuple(replace(card, bridge=(BRIDGES[0],)) for card in box.cards))
    gate.env["CUDA_VISIBLE_DEVICES"] = FIRST
    happening(gate, shared, AER.format(BRIDGES[0], "correctable", "BadTLP 700"), words=("-n", "0"))

    (suspect,) = gate.verdict["box"]["suspect"]
    assert (suspect["counter"], suspect["aside"]) == (f"aer.BadTLP@{BRIDGES[0]}", False)
    assert gate.verdict["verdict"] == "hardware suspect"
    assert gate.verdict["reasons"][0].startswith(f"a bridge above {FIRST} and others: aer.BadTLP@")
    assert gate.cards_of("a.bound") == {FIRST: "holds"}
