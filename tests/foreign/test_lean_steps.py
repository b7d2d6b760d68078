"""The Lean steps, with a stand-in for lake and for a trainer: what is shown is the plumbing, and no proof."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from pytest_cudaboot.errors import BusyError
from pytest_cudaboot.run.lean import Sandbox
from tests.foreign.checkout import fingerprint, write
from tests.run.gate import Gate

HERE = Path(__file__).parent
ASKED = ("--cudaboot-require", "long,net", "--cudaboot-lowerers", "xla")
PROOFS = ("--cudaboot-tracks", "toolchain,proofs")
RUNS = """

```bash
lake build learner
CUDA_VISIBLE_DEVICES=0 .lake/build/bin/learner data
```
"""


@dataclass(frozen=True, slots=True)
class Lean:
    """A gate over a checkout with Lean sources.

    :param log: what the stand-in was asked, one line each.
    """

    gate: Gate
    checkout: Path
    log: Path

    def judge(self, *words: str) -> pytest.RunResult:
        return self.gate.here("--cudaboot-project", str(self.checkout), *words)

    @property
    def asked(self) -> list[str]:
        return [line.split("|")[1] for line in self.log.read_text().splitlines()]


@pytest.fixture
def lean(suite: Callable[..., Gate], foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lean:
    """Its lake is the stand-in, its caches are its own."""
    gate = suite("test_step1.py", "test_step5_lean.py", "test_step0.py")
    home, log = tmp_path / "elan", tmp_path / "lake.log"
    (home / "bin").mkdir(parents=True)
    (home / "toolchains" / "leanprover--lean4---v4.12.0").mkdir(parents=True)
    shutil.copy(HERE / "lake.sh", home / "bin" / "lake")
    (home / "bin" / "lake").chmod(0o755)
    for name, value in (("ELAN_HOME", home), ("LAKE_LOG", log), ("XDG_CACHE_HOME", tmp_path / "cache")):
        monkeypatch.setenv(name, str(value))
    document = foreign / "historical" / "CUDA.md"
    document.write_text(document.read_text() + RUNS)
    write(foreign / "lean-toolchain", "leanprover/lean4:v4.12.0\n")
    write(foreign / "lakefile.lean", "package nothing\n")
    write(foreign / "Proofs.lean", "theorem one : 1 = 1 := rfl\n")
    shutil.copy(HERE / "learner.c", foreign)
    write(foreign / "data" / "digits", "0\n")
    log.touch()
    return Lean(gate, foreign, log)


def test_every_step_holds_and_the_checkout_is_left_as_it_was(lean: Lean) -> None:
    before = fingerprint(lean.checkout)

    result = lean.judge(*ASKED, *PROOFS)

    assert (result.ret, lean.gate.verdict["verdict"]) == (0, "accept")
    assert set(lean.gate.outcomes.values()) == {"holds"}
    assert {"step0.toolchain", "step1.proofs", "fast.lake-trainer", "step5.lean-trains"} <= set(
        lean.gate.outcomes
    )
    assert fingerprint(lean.checkout) == before
    assert [line.split("|")[2] for line in lean.log.read_text().splitlines()] == [""] * len(lean.asked)
    assert not [line for line in lean.log.read_text().splitlines() if line.startswith(str(lean.checkout))]
    assert lean.gate.cells["step5.lean-trains"]["evidence"]["loaded"] == ["libpjrt_ffi.so"]


def test_what_was_proved_is_recalled_until_a_source_changes(lean: Lean) -> None:
    for sources in ("", "", "theorem two : 2 = 2 := rfl\n"):
        write(lean.checkout / "More.lean", sources)
        assert lean.judge(*ASKED, *PROOFS, "-k", "proved or pinned").ret == 12

    assert lean.asked.count("build Proofs") == lean.asked.count("build ProofsMinimal") == 2
    assert lean.gate.cells["step1.proofs"]["evidence"]["Proofs"]["recalled"] is False


def test_what_changed_while_it_was_proved_is_not_taken_for_proved(lean: Lean, tmp_path: Path) -> None:
    """Somebody saves a file between two builds of a run: it is in neither, so the next run builds it."""
    lake, edited = tmp_path / "elan" / "bin" / "lake", lean.checkout / "More.lean"
    text = lake.read_text()
    save = f'case "$*" in *build*) echo "theorem two : 2 = 2 := rfl" >{edited};; esac'
    lake.write_text(text.replace("\n", f"\n{save}\n", 1))
    assert lean.judge(*ASKED, *PROOFS, "-k", "proved").ret == 12

    assert lean.judge(*ASKED, *PROOFS, "-k", "proved").ret == 12

    assert lean.asked.count("build Proofs") == lean.asked.count("build ProofsMinimal") == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "theorem three : 3 = 4 := sorry\n",
            "1 proofs are left out: ./Proofs.lean: warning: declaration uses 'sorry'",
        ),
        ("broken\n", "error: unknown identifier"),
    ],
)
def test_what_is_not_proved_is_broken_and_beside_the_gate(lean: Lean, source: str, words: str) -> None:
    write(lean.checkout / "Proofs.lean", source)

    result = lean.judge(*ASKED)

    assert (result.ret, lean.gate.verdict["tracks"]["proofs"]) == (0, "reject")
    assert lean.gate.outcomes["step1.minimal"] == "broken"
    assert words in lean.gate.cells["step1.minimal"]["reason"]
    assert lean.gate.outcomes["step1.proofs"] == "blocked"


def test_without_lake_the_steps_did_not_run_and_the_fix_is_told(
    lean: Lean, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ELAN_HOME", str(tmp_path / "nowhere"))

    lean.judge(*ASKED)

    cell = lean.gate.cells["step0.toolchain"]
    assert cell["outcome"] == "not-run"
    assert "no lake, neither on PATH=" in cell["reason"]
    assert "install elan: `curl" in cell["reason"]
    assert lean.asked == []


def test_long_work_has_to_be_asked_for(lean: Lean) -> None:
    lean.judge("--cudaboot-lowerers", "xla")

    out = {entry["spec"]: entry["reason"] for entry in lean.gate.verdict["scope"]["out"]}
    assert out["step1.proofs"] == out["step5.build"] == "long was not asked for"
    assert lean.gate.outcomes["step0.toolchain"] == "holds"
    assert set(lean.asked) == {"--version"}


def test_a_copy_that_another_run_works_in_says_who_that_is_and_what_to_do(tmp_path: Path) -> None:
    copy = Sandbox(root=tmp_path / "copy", program=tmp_path / "lake", environ={})

    with (
        copy.alone(0),
        pytest.raises(
            BusyError, match=rf"at work in .*copy for more than 0 s: pid {os.getpid()} \(.*copy.lock; wait"
        ),
    ):
        copy.alone(0)


def test_a_step_that_waits_for_another_run_in_vain_did_not_run(
    lean: Lean, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing was seen of what is under test, so that nothing is broken."""
    lean.judge("-k", "pinned")
    (lock,) = (tmp_path / "cache" / "cudaboot" / "lean").glob("*.lock")
    monkeypatch.setattr("pytest_cudaboot.run.lean.FIXTURES", 0)

    with FileLock(lock):
        lean.judge("-k", "pinned")

    cell = lean.gate.cells["step0.toolchain"]
    assert (cell["outcome"], cell["cause"]) == ("not-run", None)
    assert f"pid {os.getpid()}" in cell["reason"]
