"""Boxes whose cards count, and suites under which something happens to one of them."""

from __future__ import annotations

from dataclasses import replace

from fixtures.boxes.replay import Box, Card
from tests.boxes.box import BoxGate, steps
from tests.run.gate import Json

# A healthy card that has been up for a while: none of its totals is zero.
FIELDS = (3, 4, 94, 95, *range(142, 146), *range(173, 184))
COUNTED = tuple(f"{number} {number % 7}" for number in FIELDS)
MEASURED = (
    "83 1000000",
    "197 5000000000",
    "198 7000000000",
    "temperature 41",
    "power 95500",
    "clocks 1",
    "used 4",
    "xid 0",
)
BRIDGES = ("0000:00:01.0", "0000:00:02.0")
HAPPENS = """
import os, pathlib, pytest
ROOT = pathlib.Path(os.environ["CUDABOOT_BOX_ROOT"])

def worked(gpu, evidence):
    evidence.act()
    evidence.ran_on("cuda", [gpu.uuid])

def happen(gpu):
    if gpu.pci.startswith("00000000:01"):
        {what}

@pytest.mark.spec("a.first")
def test_first(gpu, evidence):
    worked(gpu, evidence)
    happen(gpu)
    {fails}

@pytest.mark.spec("a.bound")
def test_bound(gpu, evidence): worked(gpu, evidence)

@pytest.mark.spec("a.free")
def test_free(gpu, evidence): worked(gpu, evidence)
"""
MARK = '(ROOT / "at" / "{}").touch()'
CATALOG = (
    steps(first="each", bound="each", free="any")
    .replace("[a.bound]\n", '[a.bound]\nneeds = ["a.first"]\n')
    .replace("[a.free]\n", '[a.free]\nneeds = ["a.first"]\n')
)
FIRST, SECOND = (f"GPU-0000000{n}-0000-4000-8000-000000000000" for n in (1, 2))


def counting(*at: str, cards: int = 1) -> Box:
    """Cards with a bridge each; `at` are lines of the first one's."""
    made = [
        Card(
            uuid=(FIRST, SECOND)[n],
            name="NVIDIA L4",
            pci=f"00000000:0{n + 1}:00.0",
            capability="8.9",
            memory=23034,
            minor=n,
            counter=(*COUNTED, *MEASURED),
            bridge=(BRIDGES[n],),
        )
        for n in range(cards)
    ]
    return Box(cards=(replace(made[0], at=("later 83 2500", "later 197 3000000000", *at)), *made[1:]))


def happening(
    gate: BoxGate, box: Box, what: str, *, fails: str = "pass", words: tuple[str, ...] | None = None
) -> BoxGate:
    """A run under which that happens to the first card, while its first test has it; one card needs no workers."""
    gate.on(box).suite(HAPPENS.format(what=what, fails=fails), CATALOG)
    boot(gate)
    alone = () if len(box.cards) > 1 else ("-n", "0")
    gate.ran(*(alone if words is None else words), gpus="all")
    return gate


def boot(gate: BoxGate) -> None:
    """Give the box a kernel's log, with lines from before the run."""
    log = gate.root / "dev/kmsg"
    log.parent.mkdir(exist_ok=True)
    log.write_text(
        "6,1,0,-;what the kernel wrote at boot\n6,2,0,-;NVRM: Xid (PCI:0000:01:00): 79, long ago\n"
    )


def hardware(gate: BoxGate, spec: str, uuid: str = FIRST) -> Json:
    """What was seen of a card under a spec."""
    cells = [cell for cell in gate.verdict["cells"] if cell["spec"] == spec]
    seen = [cell["evidence"].get("hardware", {}).get(uuid) for cell in cells]
    found: Json = next(facts for facts in seen if facts is not None)
    return found
