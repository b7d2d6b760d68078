"""Complaints of other tools' users, row by row of what was collected: each test would have caught its one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fixtures.boxes.replay import Box, Card
from tests.boxes.box import BoxGate, steps

EIGHT = """
import os, time, pathlib, pytest
from pytest_cudaboot.device.cuda import visible_devices

BEFORE = os.environ["CUDA_VISIBLE_DEVICES"]
MADE = [device.uuid for device in visible_devices()]  # as an array that is made while tests are collected

@pytest.mark.spec("a.before")
def test_before(gpu, measure):
    import conftest
    measure(x=1)
    assert conftest.BEFORE == BEFORE == gpu.uuid

@pytest.mark.spec("a.made")
def test_made(gpu, measure):
    measure(x=1)
    assert MADE == [gpu.uuid]

@pytest.mark.spec("a.together")
@pytest.mark.parametrize("number", range(8))
def test_together(number, gpu, measure):
    measure(card=gpu.uuid)
    pathlib.Path(f"here-{number}").touch()
    deadline = time.monotonic() + 60
    while len(list(pathlib.Path().glob("here-*"))) < 8:
        assert time.monotonic() < deadline, "the eight are not at work at once"
        time.sleep(0.01)

@pytest.mark.spec("a.host")
@pytest.mark.parametrize("number", range(4))
def test_host(number, measure):
    measure(x=1)
    assert BEFORE == "" and MADE == []

@pytest.mark.spec("a.built")
def test_built(pjrt_shim, gpu, measure): measure(path=str(pjrt_shim))

@pytest.mark.spec("a.builthost")
def test_built_host(pjrt_shim, measure): measure(path=str(pjrt_shim))
"""
PLACES = {
    "before": "each",
    "made": "each",
    "together": "any",
    "host": "host",
    "built": "each",
    "builthost": "host",
}
EIGHT_CATALOG = steps(**PLACES)
COMPILER = '#!/bin/sh\ncase "$*" in *-shared*) echo x >> {log};; esac\nexec /usr/bin/gcc "$@"\n'
EARLY = "import os\nBEFORE = os.environ.get('CUDA_VISIBLE_DEVICES')\n"


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> BoxGate:
    """One run on eight cards, looked at from several sides. Nothing but `--gpus all` was said."""
    gate = BoxGate(tmp_path_factory.mktemp("eight"), libraries)
    gate.on("invented-eight").suite(EIGHT, EIGHT_CATALOG)
    (gate.path / "conftest.py").write_text(EARLY)
    compiler = gate.path / "bin" / "gcc"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER.format(log=gate.path / "built"))
    compiler.chmod(0o700)
    gate.env |= {"PATH": f"{compiler.parent}:{gate.env['PATH']}", "XDG_CACHE_HOME": str(gate.path / "cache")}
    gate.ran(gpus="all")
    return gate


def test_f01_the_environment_of_a_worker_is_set_before_anything_is_imported(eight: BoxGate) -> None:
    """Variables that are set in a fixture or hook are too late for what a conftest or test module reads."""
    assert eight.cards_of("a.before") == dict.fromkeys(eight.uuids, "holds")


def test_f02_tests_of_the_cpu_have_a_worker_of_their_own(eight: BoxGate) -> None:
    """There was no way to keep GPU tests on one worker, and the others for the CPU."""
    workers = {(record["spec"], record["worker"]) for record in eight.records("result")}
    on_host = {spec for spec in PLACES if PLACES[spec] == "host"}
    host = {worker for spec, worker in workers if spec.removeprefix("a.") in on_host}

    assert eight.outcomes["a.host"] == "holds"
    assert host
    assert host.isdisjoint(worker for spec, worker in workers if spec.removeprefix("a.") not in on_host)


def test_f03_what_is_built_once_per_session_is_built_once_per_run(eight: BoxGate) -> None:
    """Each worker has a session of its own, so that every one of them built the same library again."""
    built = [cell for cell in eight.verdict["cells"] if cell["spec"].startswith("a.built")]

    assert [cell["outcome"] for cell in built] == ["holds"] * 9
    assert len({cell["measurements"]["path"] for cell in built}) == 1
    assert (eight.path / "built").read_text() == "x\n"


SEEN = """
import pytest
from pytest_cudaboot.device.cuda import visible_devices
@pytest.mark.spec("a.seen")
def test_seen(gpu, measure):
    measure(x=1)
    assert [device.uuid for device in visible_devices()] == [gpu.uuid]
"""


def test_f11_cards_outside_the_callers_mask_are_somebody_elses(gate: BoxGate) -> None:
    """The mask of the shell was overwritten, and tests landed on a card that another was training on."""
    gate.on("invented-eight", CUDA_VISIBLE_DEVICES="5").suite(SEEN, steps(seen="each"))
    gate.ran("-n", "0", gpus="all")

    assert gate.cards_of("a.seen") == {gate.uuid(5): "holds"}
    assert gate.touched == [(gate.uuid(5),)]


def test_f12_what_is_made_while_tests_are_collected_is_on_the_workers_card(eight: BoxGate) -> None:
    """A session fixture pinned the process after test modules had put arrays on card 0."""
    assert eight.cards_of("a.made") == dict.fromkeys(eight.uuids, "holds")


LATE = """
import pytest
@pytest.mark.spec("a.late")
def test_late(lowerer, gpu):
    import sitecustomize
    assert len(sitecustomize.SEEN) == 8  # this process is spoiled; its work is done in another
    assert lowerer.call("prove") == [gpu.uuid]
"""
EAGER = """
from ctypes import CDLL, byref, c_int
driver, count = CDLL("libcuda.so.1"), c_int()
SEEN = range(count.value) if driver.cuInit(0) or driver.cuDeviceGetCount(byref(count)) else range(count.value)
"""


def test_f13_a_process_that_was_initialised_too_early_does_no_harm(gate: BoxGate) -> None:
    """A framework that initialised CUDA at the start of the interpreter kept every worker on one card."""
    gate.on("invented-eight").suite(LATE, steps(late="each xla"))
    (gate.path / "sitecustomize.py").write_text(EAGER)
    gate.env["PYTHONPATH"] += f":{gate.path}"
    gate.ran(gpus="6")

    assert gate.cards_of("a.late") == {gate.uuid(6): "holds"}


def test_f14_no_card_has_more_processes_than_its_own_worker(eight: BoxGate) -> None:
    """Thirty-two workers made their contexts on card 0, and the error spoke of an invalid ordinal."""
    processes = Counter(cards for cards in eight.touched if cards)

    assert processes == {(card,): 1 for card in eight.uuids}


@pytest.mark.parametrize(
    ("words", "gpus", "answer"),
    [
        (("-n", "32"), "all", "-n 32 does not go with --gpus, which sets one worker per card itself"),
        ((), "0-31", "no GPU '8'; this machine offers: 0=GPU-88888000-"),
    ],
)
def test_f14_more_workers_than_cards_are_refused_in_words(
    gate: BoxGate, words: tuple[str, ...], gpus: str, answer: str
) -> None:
    """The same complaint's other half: what is too much is said before it starts."""
    gate.on("invented-eight").suite(SEEN, steps(seen="each"))

    assert answer in gate.refused(*words, gpus=gpus)


def test_f15_nobody_writes_a_pin_for_each_worker_by_hand(eight: BoxGate, gate: BoxGate) -> None:
    """One `--tx popen//env:CUDA_VISIBLE_DEVICES=i` was needed for each card; here it is not even allowed."""
    gate.on("invented-eight").suite(SEEN, steps(seen="each"))

    assert eight.records("run")[0]["argv"][:2] == ["--gpus", "all"]
    assert len(eight.cards_of("a.before")) == 8
    refusal = gate.refused("--tx", "popen//env:CUDA_VISIBLE_DEVICES=0", gpus="0,1")
    assert "does not go with --gpus, which sets one worker per card itself" in refusal


def test_f16_eight_tests_run_on_eight_cards_at_once(eight: BoxGate) -> None:
    """A build system could give each of eight tests a card of its own, and pytest could not."""
    results = [record for record in eight.records("result") if record["spec"] == "a.together"]

    assert eight.outcomes["a.together"] == "holds"
    assert sorted(result["measurements"]["card"] for result in results) == eight.uuids


ORDINAL = """
import pytest
@pytest.mark.spec("a.card")
def test_card(lowerer, gpu, measure):
    device, = lowerer.call("driver")["devices"]
    measure(ordinal=device["ordinal"], uuid=device["uuid"], name=device["name"])
    assert (device["uuid"], device["name"]) == (gpu.uuid, gpu.name)
"""


def test_f31_an_index_is_nvmls_whatever_cuda_counts(gate: BoxGate) -> None:
    """NVML's card 0 and CUDA's device 0 were two cards, and the wrong one was used or measured."""
    gate.on("invented-mixed", CUDA_DEVICE_ORDER="FASTEST_FIRST").suite(ORDINAL, steps(card="each xla"))
    done = gate.ran("-n", "0", gpus="0")

    measured = gate.cells["a.card"]["measurements"]
    assert measured == {"ordinal": 0, "uuid": gate.uuid(0), "name": "NVIDIA GeForce RTX 4060 Ti"}
    assert gate.cards_of("a.card") == {gate.uuid(0): "holds"}
    assert f"card 0 = {gate.uuid(0)} NVIDIA GeForce RTX 4060 Ti at 00000000:01:00.0" in done.stdout


def test_f31_an_index_of_the_callers_mask_is_cudas(gate: BoxGate) -> None:
    """The other way round: what a shell's mask calls 0 is the card that CUDA calls so, the fastest."""
    gate.on("invented-mixed")
    rtx, h100, ada = gate.uuids
    questions = [("0", "0"), ("all", "2,0"), ("1", "2,0"), ("all", f"{rtx},1")]

    assert gate.ask(*questions) == [[h100], [rtx, h100], [h100], [rtx, ada]]
    gate.env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    assert gate.ask(*questions) == [[rtx], [ada, rtx], [rtx], [rtx, h100]]


EMPTY = """
import pytest
@pytest.mark.spec("a.asserts")
def test_asserts_nothing(gpu): pass
@pytest.mark.spec("a.skips")
def test_skips(gpu): pytest.skip("CUDA is not available")
"""


def test_f32_a_promised_card_that_is_absent_is_no_skip(gate: BoxGate) -> None:
    """A suite for GPUs was green on a machine without one: every test had skipped itself."""
    gate.on("invented-bare").suite(EMPTY, steps(asserts="each", skips="each"))

    assert "no GPU '0'; this machine offers: none" in gate.refused(gpus="0")


def test_f32_passing_without_doing_anything_is_no_pass(gate: BoxGate) -> None:
    """Forty-one GPU tests passed without one assertion."""
    gate.on("one-h200").suite(EMPTY, steps(asserts="each", skips="each"))
    done = gate.ran("-n", "0", gpus="0")

    assert done.returncode == 12
    assert gate.outcomes == {"a.asserts": "not-run", "a.skips": "not-run"}
    assert "no evidence" in gate.cells["a.asserts"]["reason"]
    assert "CUDA is not available" in gate.cells["a.skips"]["reason"]


def test_f32_a_suite_without_tests_is_not_green(gate: BoxGate) -> None:
    """A GPU suite that collected nothing ended well."""
    gate.on("one-h200").suite("", steps(asserts="each"))

    assert "spec 'a.asserts' is in scope and has no test" in gate.refused("-n", "0", gpus="0")


ONE_FAILS = """
import pytest
@pytest.mark.spec("a.second")
def test_second(gpu, measure):
    measure(index=gpu.index)
    assert gpu.index == 0, "only on the second card"
"""


def test_f33_what_fails_on_the_second_card_only_is_seen(gate: BoxGate) -> None:
    """A test that failed on the second card of a box was never run there."""
    gate.on(two_cards()).suite(ONE_FAILS, steps(second="each"))
    done = gate.ran(gpus="all")

    assert gate.cards_of("a.second") == {gate.uuid(0): "holds", gate.uuid(1): "broken"}
    assert (done.returncode, gate.verdict["verdict"]) == (11, "hardware suspect")


def two_cards() -> Box:
    """A box that no file has."""
    cards = [
        Card(
            uuid=f"GPU-0000000{n}-0000-4000-8000-000000000000",
            name="NVIDIA L4",
            pci=f"00000000:0{n}:00.0",
            capability="8.9",
            memory=23034,
            minor=n,
        )
        for n in (1, 2)
    ]
    return Box(cards=tuple(cards))
