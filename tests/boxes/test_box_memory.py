"""Others on a card, before a run and after a test: who is told, who is refused, and who is to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.boxes.replay import Box
from tests.boxes.box import REPLAYED, BoxGate, steps
from tests.boxes.stormy import FIRST, SECOND, counting, happening

LEAKING = """
import os, pathlib, sys, pytest
HELD = pathlib.Path(os.environ["CUDABOOT_BOX_ROOT"], "at", "held")
HOLDS = f"import ctypes, pathlib, time; cuda = ctypes.CDLL('libcuda.so.1'); pathlib.Path('{HELD}').touch(); time.sleep(60)"

@pytest.mark.spec("a.before")
def test_before(run, evidence, gpu):
    evidence.ran_on("cuda", [gpu.uuid])
    run(["true"])

@pytest.mark.spec("a.leaks")
def test_leaks(run):
    away = f'HOW {sys.executable} -c "{HOLDS}" > /dev/null 2>&1 &'
    run(["sh", "-c", f"{away} until test -e {HELD}; do sleep 0.05; done"])

@pytest.mark.spec("a.next")
def test_next(run, evidence, gpu):
    evidence.ran_on("cuda", [gpu.uuid])
    run(["true"])
"""
CATALOG = steps(before="each", leaks="each", next="each")

GROWN = """
import json, os, pathlib
from pytest_cudaboot.probes import nvml

before = nvml.memory_of(["{}", "{}", "GPU-gone"])
pathlib.Path(os.environ["CUDABOOT_BOX_ROOT"], "at", "taken").touch()
print(json.dumps(nvml.grown_since(before)))
"""


def holding(mib: int, *processes: str) -> Box:
    """A box of one card, on which others have memory."""
    box = counting()
    card = box.cards[0]
    counted = tuple(line for line in card.counter if not line.startswith("used "))
    return replace(box, cards=(replace(card, counter=(*counted, f"used {mib}"), process=processes),))


@pytest.mark.parametrize("pid", ["", "pid.{} 12000"], ids=["unnamed", "named"])
def test_what_a_test_leaves_on_its_card_is_its_leak(gate: BoxGate, pid: str) -> None:
    """It is in nobody's process group any more, and is ended; the next test finds the card clean."""
    box = counting("held used 12000", *([f"held {pid.format(4242)}"] if pid else ()))
    gate.on(box).suite(LEAKING.replace("HOW ", "setsid "), CATALOG).ran("-n", "0", gpus="all")
    cell = gate.cells["a.leaks"]

    assert gate.outcomes == {"a.before": "holds", "a.leaks": "broken", "a.next": "holds"}
    assert cell["cause"] == "leak"
    assert f"it leaves 1 process on {FIRST}, with 12000 MiB more in use than before it: " in cell["reason"]
    assert "python" in cell["reason"]
    assert "which was ended" in cell["reason"]
    assert cell["evidence"]["memory"][FIRST] == {"before_mib": 4, "after_mib": 12004}


def test_growth_without_a_process_of_ours_blames_nobody(gate: BoxGate) -> None:
    """Somebody without a lease came on the card: it is shown."""
    box = counting("held used 12000", "held pid.4242 12000")
    tests = LEAKING.replace('run(["sh", "-c", f"{away} until', 'HELD.touch(); run(["sh", "-c", f"until')
    gate.on(box).suite(tests.replace("HOW ", ""), CATALOG).ran("-n", "0", gpus="all")

    assert gate.outcomes["a.leaks"] == "holds"
    assert gate.cells["a.leaks"]["evidence"]["memory"][FIRST] == {"before_mib": 4, "after_mib": 12004}


def test_a_desktop_on_the_card_is_told_and_goes_on(gate: BoxGate) -> None:
    happening(gate, holding(204, "1 200"), "pass")

    (told,) = gate.verdict["box"]["tenants"][FIRST]
    assert told.startswith("pid 1 (")
    assert told.endswith(") has 200 MiB")
    assert gate.verdict["reasons"] == [REPLAYED]


def test_a_card_without_room_is_refused_before_anything_runs(gate: BoxGate) -> None:
    gate.on(holding(9000, "4194303 9000")).suite(LEAKING, CATALOG)
    words = gate.refused("-n", "0", gpus="all")

    assert (
        f"{FIRST} (index 0) has no room for this run: 0.75 of the card is asked for, and 0.39 of it" in words
    )
    assert "(pid 4194303 has 9000 MiB)" in words


def test_a_run_that_asks_for_less_has_room(gate: BoxGate) -> None:
    gate.env["LEAN_MLIR_MEM_FRACTION"] = "0.5"
    happening(gate, holding(9000), "pass")

    told = gate.verdict["box"]["tenants"][FIRST]
    assert told == ["9000 MiB are in use by processes that the driver does not name here"]
    assert gate.verdict["reasons"] == [REPLAYED]


def test_growth_is_told_of_each_card_by_its_name(gate: BoxGate) -> None:
    gate.on(counting("taken used 700", cards=2))

    assert gate.told(GROWN.format(FIRST, SECOND)) == {FIRST: 700 << 20, SECOND: 0, "GPU-gone": None}
