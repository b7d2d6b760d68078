"""Broken contexts and endless kernels on a simulated card: the culprit is told, and nobody else notices."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tests.run.gate
from tests.boxes.box import BoxGate
from tests.run.gate import Json

CARDS = Path(tests.run.gate.__file__).parents[1] / "cards"
CULPRITS = ("fire.illegal", "fire.unseen", "fire.endless")
UNHARMED = ("fire.before", "fire.after-illegal", "fire.after-unseen", "fire.after-endless", "fire.canary")


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> BoxGate:
    """The suite that is for real cards, run once on a box of one."""
    gate = BoxGate(tmp_path_factory.mktemp("fire"), libraries).on("one-h200")
    catalog = (CARDS / "catalog.toml").read_text().replace("budget = 4", "budget = 1")
    gate.suite((CARDS / "under_fire.py").read_text(), catalog)
    shutil.copytree(CARDS / "kernels", gate.path / "kernels")
    for name in ("conftest.py", "poison.py"):
        shutil.copy(CARDS / name, gate.path)
    shutil.copy(CARDS / "waivers.toml", gate.path / "cudaboot-waivers.toml")
    gate.ran("-n", "0", gpus="all")
    return gate


def results(gate: BoxGate) -> dict[str, Json]:
    return {record["spec"]: record for record in gate.records("result") if record["role"] == "check"}


def test_only_the_culprits_are_broken(fired: BoxGate) -> None:
    outcomes = {spec: record["status"] for spec, record in results(fired).items()}

    assert outcomes == {**dict.fromkeys(CULPRITS, "failed"), **dict.fromkeys(UNHARMED, "passed")}
    assert {spec: fired.outcomes[spec] for spec in UNHARMED} == dict.fromkeys(UNHARMED, "holds")


def test_each_has_its_own_cause(fired: BoxGate) -> None:
    assert {spec: results(fired)[spec]["cause"] for spec in CULPRITS} == {
        "fire.illegal": "run",
        "fire.unseen": "run",
        "fire.endless": "hang",
    }


def test_the_error_is_named_by_code_and_driver(fired: BoxGate) -> None:
    seen, unseen = (results(fired)[spec] for spec in ("fire.illegal", "fire.unseen"))
    fault = {
        "gpu": results(fired)["fire.before"]["gpus"][0],
        "code": 700,
        "name": "CUDA_ERROR_ILLEGAL_ADDRESS",
        "call": "cuCtxSynchronize",
        "sticky": True,
    }

    assert seen["evidence"]["device"]["sticky"] == unseen["evidence"]["device"]["sticky"] == [fault]
    assert unseen["reason"].startswith(
        "it leaves a sticky error in its device process, which was ended: GPU-"
    )
    assert "; the test itself: cuMemcpyDtoH_v2 failed with 700" in seen["reason"]


def test_a_canary_may_break_its_context(fired: BoxGate) -> None:
    canaries = [record for record in fired.records("result") if record["role"] == "canary"]

    assert [(record["status"], record["evidence"]["device"]["sticky"][0]["code"]) for record in canaries] == [
        ("passed", 700)
    ]
