"""The one way to an accept, and what a person sees of it."""

from __future__ import annotations

import pytest

from tests.run.gate import RUN_LINEAR, Gate

REAL = (
    RUN_LINEAR
    + """
import os, pytest

@pytest.fixture(scope="session")
def once():
    with open("once.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.mark.spec("a.works")
def test_works(measure, once):
    measure(figure=1)

@pytest.mark.spec("a.linear")
def test_linear(session, project):
    run_linear(session, project)

@pytest.mark.spec("a.command")
def test_command(run, once):
    assert run(["echo", "hello"]).stdout == "hello\\n"

def test_of_no_spec(once):
    pass

@pytest.mark.spec("b.card")
def test_card(gpu):
    pass
"""
)
CATALOG = """
[a.works]
kind = "step"
title = "It executes"
heading = "First"
on = "any"

[a.linear]
kind = "step"
title = "Nets run"
heading = "First"
on = "any"
lowerers = ["xla"]

[a.command]
kind = "step"
title = "A command runs"
heading = "Second"
needs = ["a.linear"]

[b.card]
kind = "step"
title = "Only a card"
heading = "Second"
when = ["gpu"]
"""


@pytest.mark.usefixtures("two_workers")
def test_everything_holds_with_workers(gate: Gate) -> None:
    result = gate.suite(REAL, CATALOG).away("-v", "--cudaboot-lowerers", "xla")

    assert result.ret == 0
    assert gate.verdict["verdict"] == "accept"
    assert gate.outcomes == dict.fromkeys(["a.works", "a.linear", "a.command"], "holds")
    assert_sessions_are_sessions(gate)
    result.stdout.fnmatch_lines(
        [
            "cudaboot: cards none (host scope, on the CPU)",
            "cudaboot: xla through *xla_cpu_pjrt.so*",
            "cudaboot: scope 3 specs in, 1 out",
            "cudaboot:   out (no card was asked for): b.card",
            "*PASSED*test_suite.py::test_works[[]host[]]*",
            "First",
            "  a.linear   xla cpu  holds*s",
            "accept · reference · 3 specs hold · 1 out of scope (no card was asked for)",
            "  report: .cudaboot/verdict.json",
        ]
    )


def assert_sessions_are_sessions(gate: Gate) -> None:
    """A worker keeps its session fixtures, though it is sent one test at a time."""
    made = (gate.path / "once.txt").read_text().split()

    assert 1 <= len(made) == len(set(made)) <= 2


def test_cells_say_where_they_ran_and_what_they_left(gate: Gate) -> None:
    gate.suite(REAL, CATALOG).here()

    linear = gate.cells["a.linear"]
    assert (linear["lowerer"], linear["platform"], linear["gpus"]) == ("xla", "cpu", [])
    assert linear["evidence"]["device_log"].endswith("device-main-1.log")
    assert gate.cells["a.works"]["measurements"] == {"figure": 1}
    assert gate.cells["a.command"]["platform"] is None


def test_quiet_prints_only_the_closing(gate: Gate) -> None:
    result = gate.suite().here("-q")

    assert result.ret == 0
    result.stdout.no_fnmatch_line("First")
    result.stdout.fnmatch_lines(["accept · reference · 1 spec holds", "  report: .cudaboot/verdict.json"])


@pytest.mark.parametrize("words", [("-p", "no:terminal"), ("-p", "no:cacheprovider"), ("-W", "error")])
def test_accept_does_not_depend_on_other_plugins(gate: Gate, words: tuple[str, ...]) -> None:
    assert gate.suite().here(*words).ret == 0
    assert gate.verdict["verdict"] == "accept"


def test_a_header_says_what_protection_is_off(gate: Gate) -> None:
    result = gate.suite().here()

    result.stdout.fnmatch_lines(
        ["cudaboot: tests run in this process: a crash of one ends the run, and a hang in its own code is*"]
    )


def test_without_xdist_tests_run_in_this_process(gate: Gate) -> None:
    result = gate.suite().away("-p", "no:xdist")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["cudaboot: tests run in this process*", "accept*"])


def test_nothing_is_left_beside_the_published_files(gate: Gate) -> None:
    gate.suite().here()

    assert sorted(path.name for path in gate.out.iterdir()) == [
        ".gitignore",
        ".lock",
        "ledger.jsonl",
        "verdict.json",
    ]


def test_what_was_in_force_is_recorded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    gate.suite().here()

    assert gate.verdict["toolchain"]["environment"] == {"XLA_FLAGS": "dropped: --xla_dump_to=/nowhere"}
