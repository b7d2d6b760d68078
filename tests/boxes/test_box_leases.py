"""Whole runs and the leases of their cards: who is refused, what frees a card, and who keeps it busy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.probes.lease import acquire, obstacles, occupy
from pytest_cudaboot.run.settings import read_settings
from tests.boxes.box import BoxGate, steps

CHEAP = """
import pytest
@pytest.mark.spec("a.cheap")
def test_cheap(gpu, measure): measure(card=gpu.uuid)
"""
CATALOG = steps(cheap="each")
SLOW = """
import pathlib, pytest, time
@pytest.mark.spec("a.cheap")
def test_cheap(gpu, run):
    run(["sh", "-c", f"touch {pathlib.Path.cwd()}/begun; exec sleep 300"])
"""
KEEPERS = """
import os, pytest

def kept(pid, gpu):
    return f"{gpu.uuid}.busy" in [os.path.basename(os.readlink(f"/proc/{pid}/fd/{fd}")) for fd in os.listdir(f"/proc/{pid}/fd")]

LIST = ["sh", "-c", "ls -l /proc/self/fd"]

@pytest.mark.spec("a.command")
def test_command(run, gpu):
    assert f"{gpu.uuid}.busy" in run(LIST).stdout
    assert f"{gpu.uuid}.busy" not in run(LIST, device=False).stdout

@pytest.mark.spec("a.background")
def test_background(run, gpu, tmp_path):
    with run.background(["sleep", "300"], tmp_path / "out") as group:
        assert kept(group.pid, gpu)

@pytest.mark.spec("a.device")
def test_device(lowerer, gpu):
    assert kept(lowerer.call("mapped") and lowerer._process.pid, gpu)

@pytest.mark.spec("a.host")
def test_host(run):
    assert ".busy" not in run(LIST).stdout
"""
SECONDS = 30.0


@pytest.fixture
def box(gate: BoxGate) -> BoxGate:
    return gate.on("invented-eight").suite(CHEAP, CATALOG)


def leases(box: BoxGate) -> Path:
    return Path(box.env["CUDABOOT_LEASE_DIR"])


@contextmanager
def started(box: BoxGate, *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "pytest", "--gpus", "0", "-p", "no:cacheprovider", *words, "."]
    with subprocess.Popen(
        argv, cwd=box.path, env=box.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def test_a_held_card_is_refused_with_its_holder(box: BoxGate) -> None:
    with acquire([box.uuid(1)], folder=leases(box)):
        said = box.refused(gpus="0-2")

    assert f"{box.uuid(1)} is leased by pid {os.getpid()} of " in said
    assert "wait for it with --cudaboot-wait SECONDS, or name other cards with --gpus" in said
    assert box.uuid(1) in box.verdict["reasons"][0]


def test_the_other_cards_are_to_be_had_and_all_are_free_after_it(box: BoxGate) -> None:
    with acquire([box.uuid(1)], folder=leases(box)):
        box.ran("-n", "0", gpus="0")

    assert box.cards_of("a.cheap") == {box.uuid(0): "holds"}
    assert obstacles(box.uuids, folder=leases(box)) == ()


def test_what_an_earlier_run_left_behind_keeps_the_card(box: BoxGate) -> None:
    busy = occupy(box.uuid(0), folder=leases(box))
    said = box.refused(gpus="0")
    os.close(busy)

    assert f"{box.uuid(0)} is still used by pid {os.getpid()} (" in said


def test_a_run_that_waits_says_for_what_and_goes_on(box: BoxGate) -> None:
    lease = acquire([box.uuid(0)], folder=leases(box))
    with started(box, "-n", "0", "--cudaboot-wait", str(SECONDS)) as run:
        assert run.stderr is not None
        told = run.stderr.readline()
        lease.release()
        run.wait(SECONDS)

    assert told.startswith(f"cudaboot: waiting up to 30 s: {box.uuid(0)} is leased by pid {os.getpid()} of ")
    assert box.cards_of("a.cheap") == {box.uuid(0): "holds"}


def test_a_run_that_has_waited_long_enough(box: BoxGate) -> None:
    (box.path / "pytest.ini").write_text("[pytest]\ncudaboot_wait = 0.2\n")
    with acquire([box.uuid(0)], folder=leases(box)):
        assert f"after 0.2 s still: {box.uuid(0)} is leased by" in box.refused(gpus="0")


def test_a_wait_that_is_no_number_of_seconds(box: BoxGate) -> None:
    said = box.refused("--cudaboot-wait=-1", gpus="0")

    assert "--cudaboot-wait: '-1' is not a number of seconds" in said


@pytest.mark.parametrize("wait", ["soon", "nan", "inf"])
def test_others_that_are_none(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    monkeypatch.setattr(pytestconfig.known_args_namespace, "cudaboot_wait", wait)

    with pytest.raises(UsageError, match=f"--cudaboot-wait: '{wait}' is not a number of seconds"):
        read_settings(pytestconfig)


def test_to_collect_takes_no_lease(box: BoxGate) -> None:
    with acquire([box.uuid(0)], folder=leases(box)):
        assert box.ran("--collect-only", gpus="0").returncode == 0


def test_a_run_without_cards_takes_no_lease(box: BoxGate) -> None:
    box.suite(CHEAP.replace("gpu, ", "").replace("card=gpu.uuid", "figure=1"), steps(cheap="any"))
    with acquire(box.uuids, folder=leases(box)):
        box.ran("-n", "0", gpus="none")

    assert box.outcomes["a.cheap"] == "holds"


def test_a_killed_run_frees_its_cards(box: BoxGate) -> None:
    """Its workers and their commands end with it."""
    box.suite(SLOW, CATALOG)
    with started(box) as run:
        wait_for(box.path / "begun", run)
        assert [found.uuid for found in obstacles(box.uuids, folder=leases(box))] == [box.uuid(0)]
        run.kill()
        run.wait(SECONDS)

    acquire(box.uuids, folder=leases(box), wait=SECONDS).release()


@pytest.mark.parametrize("words", [(), ("-n", "0")], ids=["workers", "n0"])
def test_whatever_uses_the_card_keeps_it_busy(box: BoxGate, words: tuple[str, ...]) -> None:
    places = {"command": "each", "background": "each", "device": "each xla", "host": "host"}
    box.suite(KEEPERS, steps(**places))
    box.ran(*words, *(["-k", "not host"] if words else []), gpus="0")

    del places["host"]
    assert {spec: box.outcomes[f"a.{spec}"] for spec in places} == dict.fromkeys(places, "holds")
    if not words:
        assert box.outcomes["a.host"] == "holds"


def wait_for(path: Path, run: subprocess.Popen[str]) -> None:
    while not path.exists():
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(0.05)
