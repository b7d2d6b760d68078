"""What is not proved is not accepted: silence, skips, excuses, selections, and whatever stops a run."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from tests.run.gate import HELD, Gate, catalog_of

TWO = catalog_of("b.other")
OTHER = '@pytest.mark.spec("b.other")\n'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("def test_other(): pass", "no evidence"),
        ('def test_other(): pytest.skip("not today")', "not today"),
        ('@pytest.mark.skip(reason="by mark")\ndef test_other(): pass', "by mark"),
        ("@pytest.mark.xfail\ndef test_other(): assert 0", "expected failure: assert 0"),
        (
            '@pytest.mark.xfail(reason="b1")\ndef test_other(measure): measure(x=1)',
            "passed, though marked xfail: b1",
        ),
        ("@pytest.mark.xfail(run=False)\ndef test_other(): pass", "expected failure: *"),
        ("def test_other(gpu): pass", "this worker has no card"),
    ],
)
def test_a_test_that_proves_nothing_is_not_run(gate: Gate, body: str, reason: str) -> None:
    gate.suite(HELD + OTHER + body, TWO).here()

    assert gate.verdict["exit"] == 12
    assert gate.outcomes == {"a.works": "holds", "b.other": "not-run"}
    assert fnmatch(gate.cells["b.other"]["reason"], reason)


def test_a_pass_without_evidence_is_not_shown_as_one(gate: Gate) -> None:
    result = gate.suite(HELD + OTHER + "def test_other(): pass", TWO).here("-v")

    assert result.ret == 12
    result.stdout.fnmatch_lines(["*test_other[[]host[]] NO EVIDENCE*", "*1 passed, 1 without evidence*"])


def test_a_strict_xpass_is_broken(gate: Gate) -> None:
    gate.suite(
        HELD + OTHER + "@pytest.mark.xfail(strict=True)\ndef test_other(run): run(['true'])", TWO
    ).here()

    assert gate.verdict["exit"] == 1
    assert "[XPASS(strict)]" in gate.cells["b.other"]["reason"]


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (("-k", "works"), "b.other"),
        (("-m", "not slow"), "b.other"),
        (("--deselect", "test_suite.py::test_other"), "b.other"),
    ],
)
def test_a_selection_is_incomplete(gate: Gate, words: tuple[str, ...], left_out: str) -> None:
    tests = HELD + OTHER + "@pytest.mark.slow\ndef test_other(measure): measure(x=1)"
    gate.suite(tests, TWO)
    result = gate.here("-o", "markers=slow", *words)

    assert result.ret == gate.verdict["exit"] == 12
    assert f"1 cell in scope was left out of this run: {left_out}" in gate.verdict["reasons"]


def test_some_of_the_files_are_incomplete(gate: Gate) -> None:
    gate.suite(HELD, TWO)
    (gate.path / "test_more.py").write_text(
        "import pytest\n" + OTHER + "def test_other(measure): measure(x=1)"
    )
    result = gate.pytester.runpytest_inprocess("--gpus", "none", "-n", "0", "test_suite.py")

    assert result.ret == 12
    assert gate.outcomes == {"a.works": "holds", "b.other": "not-run"}


@pytest.mark.parametrize("words", [("-x",), ("--maxfail", "1")])
def test_stopping_at_the_first_failure_leaves_the_rest_open(gate: Gate, words: tuple[str, ...]) -> None:
    tests = HELD.replace("measure(figure=1)", "assert 0") + OTHER + "def test_other(measure): measure(x=1)"
    result = gate.suite(tests, TWO).here(*words)

    assert result.ret == 1
    assert gate.outcomes == {"a.works": "broken", "b.other": "not-run"}
    assert "the run was stopped early (-x or --maxfail)" in gate.verdict["reasons"]


def test_a_failure_without_a_spec_rejects(gate: Gate) -> None:
    gate.suite(HELD + "def test_stray(): assert 1 == 2").here()

    assert gate.verdict["exit"] == 1
    assert gate.verdict["reasons"] == [
        "a test without a spec failed: test_suite.py::test_stray: assert 1 == 2"
    ]


def test_a_module_that_is_skipped_is_not_excused(gate: Gate) -> None:
    gate.suite(HELD, TWO)
    text = (
        "import pytest\npytest.skip('not here', allow_module_level=True)\n" + OTHER + "def test_other(): pass"
    )
    (gate.path / "test_more.py").write_text(text)
    gate.here()

    assert gate.verdict["exit"] == 12
    assert gate.verdict["reasons"][0] == "test_more.py was skipped as a whole: Skipped: not here"


def test_a_broken_prerequisite_is_one_red_cell(gate: Gate) -> None:
    catalog = catalog_of("b.base", "b.next", "b.last", b_next=["b.base"], b_last=["b.next"])
    tests = (
        HELD
        + """
@pytest.mark.spec("b.base")
def test_base(): assert 0
@pytest.mark.spec("b.last")
def test_last(measure): open("ran", "w")
@pytest.mark.spec("b.next")
def test_next(measure): open("ran", "w")
"""
    )
    result = gate.suite(tests, catalog).here("-v")

    assert gate.verdict["exit"] == 1
    assert gate.outcomes == {"a.works": "holds", "b.base": "broken", "b.next": "blocked", "b.last": "blocked"}
    assert not (gate.path / "ran").exists()
    result.stdout.fnmatch_lines(["test_suite.py::test_last* BLOCKED (its prerequisite b.base is broken)"])


def test_a_waiver_excuses_and_lets_the_next_go_on(gate: Gate) -> None:
    catalog = catalog_of("b.base", "b.next", b_next=["b.base"])
    tests = (
        HELD
        + """
@pytest.mark.spec("b.base")
def test_base(): assert 0
@pytest.mark.spec("b.next")
def test_next(measure): measure(x=1)
"""
    )
    waiver = '[[waiver]]\nspec = "b.base"\nreason = "known"\nowner = "me"\nexpires = 2999-01-01\n'
    (gate.path / "cudaboot-waivers.toml").write_text(waiver)
    gate.suite(tests, catalog).here()

    assert gate.verdict["exit"] == 0
    assert gate.outcomes == {"a.works": "holds", "b.base": "waived", "b.next": "holds"}
    assert gate.verdict["waivers"][0]["state"] == "used"


def test_what_is_required_and_not_met_is_incomplete(gate: Gate) -> None:
    gate.suite().here("--cudaboot-require", "gpu")

    assert gate.verdict["exit"] == 12
    assert gate.verdict["reasons"] == ["gpu is required, and not met: no card was asked for"]


def test_a_lowerer_that_was_named_must_be_proved(gate: Gate) -> None:
    gate.suite().here("--cudaboot-lowerers", "iree")

    assert gate.verdict["exit"] == 12
    assert gate.verdict["reasons"] == ["nothing is proved of lowerer iree: no deciding gate cell holds"]


def test_figures_may_be_anything_that_a_spec_measures(gate: Gate) -> None:
    tests = """
import pytest, numpy
@pytest.mark.spec("a.works")
def test_works(measure): measure(a=numpy.float32(0.5), b=float("nan"), c=[numpy.int64(3)], d={"e": ()})
"""
    gate.suite(tests).here()

    assert gate.cells["a.works"]["measurements"] == {"a": 0.5, "b": "nan", "c": [3], "d": {"e": []}}


def test_a_command_that_outlives_the_budget_has_hung(gate: Gate) -> None:
    tests = HELD + OTHER + "def test_other(run): run(['sleep', '300'])"
    gate.suite(tests, TWO.replace("needs = []", "budget = 0.2")).here()

    assert (gate.outcomes["b.other"], gate.cells["b.other"]["cause"]) == ("broken", "hang")
    assert "sleep: did not end within" in gate.cells["b.other"]["reason"]


HALVES = (
    HELD
    + OTHER
    + """def test_fine(measure): measure(x=1)
"""
    + OTHER
    + """def test_numbers(): assert 0
"""
)


@pytest.mark.parametrize(
    "words",
    [("-k", "not numbers"), ("--deselect", "test_suite.py::test_numbers"), ("-k", "works or fine")],
    ids=["-k", "--deselect", "-k, the other way round"],
)
def test_half_of_a_cells_tests_is_no_cell(gate: Gate, words: tuple[str, ...]) -> None:
    gate.suite(HALVES, TWO).here(*words)

    assert gate.verdict["exit"] == 12
    assert "left out by a selection: test_suite.py::test_numbers[host]" in gate.verdict["reasons"]


@pytest.mark.parametrize("name", ["test_suite.py::test_fine", "test_suite.py"])
def test_half_of_a_suite_is_no_suite(gate: Gate, name: str) -> None:
    gate.suite(HELD + OTHER + "def test_fine(measure): measure(x=1)\n", TWO)
    (gate.path / "test_more.py").write_text("import pytest\n" + OTHER + "def test_numbers(): assert 0\n")

    gate.pytester.runpytest_inprocess("--gpus", "none", "-n", "0", "test_suite.py::test_works", name)

    assert gate.verdict["exit"] == 12
    assert "only a part of the suite was asked for" in gate.verdict["reasons"]


def test_files_that_are_not_looked_at_are_a_hole(gate: Gate) -> None:
    gate.suite(HELD + OTHER + "def test_fine(measure): measure(x=1)\n", TWO)
    (gate.path / "test_more.py").write_text("import pytest\n" + OTHER + "def test_numbers(): assert 0\n")

    gate.here("--ignore", "test_more.py")

    assert gate.verdict["exit"] == 12
    assert "--ignore may leave out files of the suite" in gate.verdict["reasons"]


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan"])
def test_what_runs_no_test_is_refused(gate: Gate, option: str) -> None:
    result = gate.suite().here(option)

    assert result.ret == 4
    result.stderr.fnmatch_lines([f"*{option} runs no test, so there is nothing to judge"])


def test_a_test_whose_body_did_not_run_is_not_run(gate: Gate) -> None:
    (gate.path / "conftest.py").write_text(
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    from _pytest.runner import call_and_report\n"
        "    for when in ('setup', 'teardown'):\n"
        "        call_and_report(item, when, nextitem=nextitem)\n"
        "    return item.name.startswith('test_other') or None\n"
    )
    tests = HELD + OTHER + "def test_other(act): pass\n@pytest.fixture\ndef act(evidence): evidence.act()\n"
    gate.suite(tests, TWO).here()

    assert (gate.outcomes["b.other"], gate.cells["b.other"]["reason"]) == ("not-run", "its body did not run")


def test_the_worse_of_two_phases_counts(gate: Gate) -> None:
    tests = """
from pytest_cudaboot.errors import UnsupportedError
@pytest.fixture
def breaks():
    yield
    assert 0, "in the tear-down"
@pytest.mark.spec("b.other")
def test_other(breaks, measure):
    measure(x=1)
    raise UnsupportedError("not here", 99)
"""
    gate.suite(HELD + tests, TWO.replace("[b.other]", '[b.other]\nmay = ["unsupported"]')).here()

    assert gate.verdict["exit"] == 1
    assert gate.cells["b.other"]["reason"] == "in the tear-down assert 0"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cudaboot.failure", '{"status": "passed", "cause": null, "reason": "forged", "problem": null}'),
        ("cudaboot", '{"acts": 9, "spec": "b.other", "platform": "cpu", "gpus": []}'),
    ],
)
def test_a_test_can_not_write_its_own_report(gate: Gate, name: str, value: str) -> None:
    forged = f"    record_property({name!r}, {value!r})\n"
    body = "    assert 0\n" if name.endswith("failure") else ""
    gate.suite(HELD + OTHER + f"def test_other(record_property):\n{forged}{body}", TWO).here()

    assert gate.outcomes["b.other"] == ("broken" if body else "not-run")


def test_a_measurement_is_no_proof_of_the_cpu(gate: Gate) -> None:
    gate.suite(HELD.replace('evidence.ran_on("cpu", [])', "pass")).here()

    assert gate.verdict["exit"] == 12
    assert (
        "nothing is proved on the CPU: no deciding gate cell that executes holds" in gate.verdict["reasons"]
    )
