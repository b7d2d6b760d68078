"""What can not be asked for: exit 4, in words, and no older accept survives it."""

from __future__ import annotations

import fcntl
import os

import pytest

from tests.run.gate import HELD, WORKS, Gate, catalog_of

OTHER = '@pytest.mark.spec("b.other")\ndef test_other(measure): measure(x=1)\n'


def refused(gate: Gate, result: pytest.RunResult, words: str) -> None:
    """The run ended as a usage error, said so, and left that in place of the accept."""
    assert result.ret == 4
    assert words in " ".join(result.stderr.str().split())
    assert gate.verdict["verdict"] == "incomplete"
    assert gate.verdict["exit"] == 4
    assert words in gate.verdict["reasons"][0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cudaboot-lowerers", "tpu"], "--cudaboot-lowerers: 'tpu' is not one of xla, iree"),
        (
            ["--cudaboot-tracks", "all"],
            "--cudaboot-tracks: 'all' is not one of toolchain, box, document, proofs",
        ),
        (["--cudaboot-require", "gpus:x"], "--cudaboot-require: 'gpus:x' is not one of gpu, cuda-plugin"),
        (["--cudaboot-catalog", "no.toml"], "no.toml' is not a file"),
        (["--cudaboot-project", "no"], "--cudaboot-project 'no' is not a directory"),
        (["--cudaboot-waive", "no.toml"], "no.toml: can not be read: No such file or directory"),
        (
            ["--dist", "loadfile"],
            "--dist 'loadfile' does not go with --gpus, which sets one worker per card itself",
        ),
        (["--maxprocesses", "2"], "--maxprocesses 2 does not go with --gpus"),
        (["--tx", "2*popen"], "--tx ['2*popen'] does not go with --gpus"),
        (["-n", "4"], "-n 4 does not go with --gpus"),
    ],
)
def test_a_refusal_replaces_an_old_accept(gate: Gate, words: list[str], message: str) -> None:
    gate.suite().old_accept()

    refused(gate, gate.here(*words), message)


@pytest.mark.usefixtures("no_cards")
@pytest.mark.parametrize("wanted", ["0", "all"])
def test_a_card_that_is_not_there(gate: Gate, wanted: str) -> None:
    gate.suite().old_accept()
    result = gate.here(gpus=wanted)

    refused(gate, result, "this machine offers: none (NVML says: NVML Shared Library Not Found)")


@pytest.mark.usefixtures("no_cards")
def test_auto_is_none_where_there_is_no_card(gate: Gate) -> None:
    assert gate.suite().here(gpus="auto").ret == 0


def test_words_that_name_no_card(gate: Gate) -> None:
    gate.suite().old_accept()

    refused(gate, gate.here(gpus="first"), "'first' names no GPU; write none, auto, all, or a list of")


@pytest.mark.parametrize(
    ("tests", "catalog", "message"),
    [
        (HELD + OTHER, WORKS, "test_suite.py::test_other[host]: names the unknown spec 'b.other'"),
        (HELD, catalog_of("b.other"), "spec 'b.other' is in scope and has no test"),
        (
            HELD + '@pytest.mark.spec("a.works", role="canary")\ndef test_c(canary): pass',
            WORKS,
            "role 'canary' does not belong to 'a.works', which has: check",
        ),
        (HELD, catalog_of("b.x", "b.y", b_x=["b.y"], b_y=["b.x"]), "catalog.toml: needs: a cycle: b."),
        (HELD, WORKS + "nonsense = 1\n", "catalog.toml: [a.works]: nonsense: unknown key"),
        (HELD, "[a", "catalog.toml: is not TOML"),
    ],
)
def test_suite_and_catalogue_that_do_not_fit(gate: Gate, tests: str, catalog: str, message: str) -> None:
    gate.suite(tests, catalog).old_accept()

    refused(gate, gate.here(), message)


def test_the_same_with_workers(gate: Gate) -> None:
    gate.suite(HELD, catalog_of("b.other")).old_accept()

    refused(gate, gate.away(), "suite and catalogue do not fit: spec 'b.other' is in scope and has no test")


def test_an_option_that_nobody_knows(gate: Gate) -> None:
    gate.suite().old_accept()
    result = gate.here("--no-such-option")

    assert result.ret == gate.verdict["exit"] == 4
    assert gate.verdict["reasons"] == ["the run ended before its session began; what it printed says why"]


def test_a_conftest_that_raises(gate: Gate) -> None:
    gate.suite().old_accept()
    (gate.path / "conftest.py").write_text("raise RuntimeError('no good')")
    result = gate.here()

    assert result.ret == gate.verdict["exit"] == 4


def test_a_plugin_that_stops_the_session_before_it_begins(gate: Gate) -> None:
    gate.suite().old_accept()
    (gate.path / "conftest.py").write_text("def pytest_sessionstart(): raise RuntimeError('no good')")
    result = gate.here()

    assert result.ret == gate.verdict["exit"] == 3
    assert gate.verdict["verdict"] == "incomplete"


def test_a_folder_that_can_not_be_written(gate: Gate) -> None:
    (gate.path / "file").touch()
    result = gate.suite().here("--cudaboot-out", "file/inside")

    assert result.ret == 4
    result.stderr.fnmatch_lines(["*can not write to '*file/inside' (Not a directory); name another folder*"])


def test_a_folder_that_another_run_holds(gate: Gate) -> None:
    gate.suite().here()
    before = gate.verdict
    with (gate.out / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = gate.here()

    assert result.ret == 4
    result.stderr.fnmatch_lines([f"*another run (pid {os.getpid()}) writes to*name another --cudaboot-out"])
    assert gate.verdict == before


def test_the_out_folder_may_be_somebodys_own(gate: Gate) -> None:
    (gate.path / "logs").mkdir()
    (gate.path / "logs" / "mine.log").touch()
    result = gate.suite().here("--cudaboot-out", ".")

    assert result.ret == 0
    assert (gate.path / "logs" / "mine.log").exists()
    assert not (gate.path / ".gitignore").exists()
    assert not (gate.path / ".work").exists()


def test_collecting_only_gives_no_verdict_and_leaves_the_old_one(gate: Gate) -> None:
    gate.suite().here()
    before = gate.verdict
    result = gate.here("--collect-only", "-q")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["test_suite.py::test_works[[]host[]]"])
    result.stdout.no_fnmatch_line("*accept*")
    assert gate.verdict == before


def test_without_a_catalogue_the_old_verdict_goes_and_pytest_has_the_word(gate: Gate) -> None:
    gate.suite(
        "def test_mine(run): run(['true'])\ndef test_red(gpus): assert gpus", catalog=None
    ).old_accept()
    result = gate.here()

    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    assert not (gate.out / "verdict.json").exists()
    assert gate.records("end")[0]["interrupted"] is None


def test_a_kernel_that_can_not_keep_processes_in_hand(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    gate.suite().old_accept()
    monkeypatch.setattr("os.pidfd_open", refuse)
    result = gate.here()

    assert (result.ret, gate.verdict["exit"]) == (4, 4)
    result.stderr.fnmatch_lines(["*pidfd_open is refused (Operation not permitted); it needs Linux 5.3*"])
