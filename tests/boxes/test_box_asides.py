"""A process that SIGKILL does not end: its card gets nothing more in this run, and the others get what they can take."""

from __future__ import annotations

from tests.boxes.box import BoxGate, steps

# A process in uninterruptible sleep can not be had on demand: on the first card, whatever is killed is said to live on.
UNKILLABLE = """
import os
from pytest_cudaboot.probes import procfs

def survivors(group, deadline):
    on_the_first = os.environ["CUDA_VISIBLE_DEVICES"] == "%s"
    return (f"{group} (python, state D)",) if on_the_first else ()

procfs.survivors = survivors
"""
TESTS = """
import os, pytest
@pytest.mark.spec("a.stuck")
def test_stuck(run): run(["sleep", "2"] if os.environ["CUDA_VISIBLE_DEVICES"] == "%s" else ["true"])
@pytest.mark.spec("a.bound")
def test_bound(run): run(["true"])
@pytest.mark.spec("a.free")
def test_free(run, gpu, measure): run(["true"]); measure(card=gpu.uuid)
"""
CATALOG = (
    steps(stuck="each", bound="each", free="any")
    .replace("[a.bound]\n", '[a.bound]\nneeds = ["a.stuck"]\n')
    .replace("[a.free]\n", '[a.free]\nneeds = ["a.stuck"]\n')
    .replace("[a.stuck]\n", "[a.stuck]\nbudget = 0.5\n")
)
WAIVER = '[[waiver]]\nspec = "a.stuck"\nreason = "r"\nowner = "me"\nexpires = 2999-01-01\n'


def stuck(gate: BoxGate, box: str) -> BoxGate:
    gate.on(box).suite(TESTS % gate.uuid(0), CATALOG)
    (gate.path / "conftest.py").write_text(UNKILLABLE % gate.uuid(0))
    (gate.path / "cudaboot-waivers.toml").write_text(WAIVER)
    return gate


def test_work_for_any_card_goes_to_another(gate: BoxGate) -> None:
    stuck(gate, "two-h200").ran(gpus="all")
    first, second = gate.uuids

    blocked = [record["reason"] for record in gate.records("blocked")]
    assert gate.cards_of("a.bound") == {first: "not-run", second: "holds"}
    assert gate.outcomes["a.free"] == "holds"
    assert len(blocked) == 1
    assert blocked[0].startswith(
        f"no worker for '{first}'; {first} is set aside: still alive after SIGKILL: "
    )
    assert "(python, state D)" in blocked[0]


def test_without_workers_nothing_is_started_there_any_more(gate: BoxGate) -> None:
    stuck(gate, "one-h200").ran("-n", "0", gpus="all")
    results = {record["spec"]: record for record in gate.records("result")}

    assert results["a.stuck"]["cause"] == "hang"
    for spec in ("a.bound", "a.free"):
        assert results[spec]["status"] == "skipped"
        assert "is set aside for the rest of this run: still alive after SIGKILL: " in results[spec]["reason"]
