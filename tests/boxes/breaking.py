"""A suite in which everything breaks, each test in its own way, on a simulated box of two cards; and its `repro.sh`."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from tests.boxes.box import BoxGate, steps
from tests.boxes.stormy import counting

TESTS = """
import os, pathlib, signal, sys
import pytest
from pytest_cudaboot.errors import DeviceError, NumericError
from pytest_cudaboot.lowerers.build import build_program

SECRET = os.environ["BREAKING"]  # it is not told to anybody
HELD = [pathlib.Path(os.environ["CUDABOOT_BOX_ROOT"], "at", f"held-{n}") for n in range(1, 10)]
HOLDS = "import ctypes, pathlib, time; ctypes.CDLL('libcuda.so.1'); pathlib.Path('{}').touch(); time.sleep(60)"

@pytest.fixture(scope="session")
def shared():
    return []

@pytest.mark.spec("a.assertion")
def test_assertion(measure):
    measure(figure=1)
    assert 1 == 2, "one is not two"

@pytest.mark.spec("a.numeric")
def test_numeric(lowerer):
    lowerer.call("prove")
    raise NumericError("0.5 is not 0.25")

@pytest.mark.spec("a.compile")
def test_compile(tmp_path, measure):
    measure(figure=1)
    (tmp_path / "ffi").mkdir()
    (tmp_path / "ffi" / "bad.c").write_text("int main(void) { return no_such_name; }")
    build_program(tmp_path, "ffi/bad.c", tmp_path / "out", [], env=os.environ)

@pytest.mark.spec("a.run")
def test_run(run):
    run(["sh", "-c", "echo it will not >&2; exit 3"])

@pytest.mark.spec("a.crash")
def test_crash(lowerer):
    os.kill(lowerer._process.pid, signal.SIGSEGV)
    lowerer.call("prove")

@pytest.mark.spec("a.hang")
def test_hang(run):
    run(["sleep", "60"])

@pytest.mark.spec("a.leak")
def test_leak(run):
    held = next(path for path in HELD if not path.exists())
    away = f'setsid {sys.executable} -c "{HOLDS.format(held)}" > /dev/null 2>&1 &'
    run(["sh", "-c", f"{away} until test -e {held}; do sleep 0.05; done"])

@pytest.mark.spec("a.culprit")
def test_culprit(lowerer, shared, measure):
    shared.append(lowerer)
    lowerer.call("prove")
    os.kill(lowerer._process.pid, signal.SIGSEGV)
    with pytest.raises(DeviceError):
        lowerer.call("prove")
    raise AssertionError("it broke what it shares")

@pytest.mark.spec("a.collateral")
def test_collateral(shared, measure):
    measure(figure=1)
    (shared[0] if shared else pytest.fail("nobody was here before")).call("prove")

@pytest.mark.spec("a.silent")
def test_silent_works(measure):
    measure(figure=1)

@pytest.mark.spec("a.silent", role="canary")
def test_silent(canary, measure):
    measure(figure=1)
    with canary("no such option"):
        pass

@pytest.mark.spec("a.otherwise")
def test_otherwise_works(measure):
    measure(figure=1)

@pytest.mark.spec("a.otherwise", role="canary")
def test_otherwise(canary, measure, run):
    with canary("no such option"):
        run(["sh", "-c", "echo something else >&2; exit 1"])

@pytest.mark.spec("a.worker")
def test_worker(measure):
    measure(figure=1)
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.spec("a.bound")
def test_bound(lowerer, gpu):
    assert lowerer.call("prove") == [gpu.uuid]
    assert gpu.uuid != os.environ["BAD_CARD"], "this card"
"""
TRAPS = "\n".join(
    f'[a.{name}]\nkind = "gotcha"\ncanary = "guard"\ntitle = "T"\nheading = "H"\n'
    for name in ("silent", "otherwise")
)
PLACES = {
    "assertion": "host",
    "numeric": "any xla",
    "compile": "host",
    "run": "host",
    "crash": "any xla",
    "hang": "host",
    "leak": "any",
    "culprit": "each xla",
    "collateral": "each xla",
    "worker": "host",
    "bound": "each xla",
}
CATALOG = steps(**PLACES).replace("[a.hang]", "[a.hang]\nbudget = 1") + TRAPS
CAUSES = {
    "assertion": "assertion",
    "numeric": "numeric",
    "compile": "compile",
    "run": "run",
    "crash": "crash",
    "hang": "hang",
    "leak": "leak",
    "collateral": "collateral",
    "silent": "assertion",
    "otherwise": "assertion",
    "worker": "crash",
    "bound": "assertion",
}


LEAKS = tuple(f"held-{number} used 100" for number in range(1, 10))  # MiB, each time


@dataclass(frozen=True, slots=True)
class Broken:
    """A run in which everything breaks."""

    gate: BoxGate
    output: str

    def folder(self, name: str) -> Path:
        """What is left of a spec's only broken cell, or of the first card's."""
        return min(self.gate.out.glob(f"broken/a.{name}*"))

    def reproduced(self, name: str, elsewhere: Path) -> subprocess.CompletedProcess[str]:
        """Run a cell's script as it stands, from some other place, in a shell that has not what the run had."""
        kept = {key: value for key, value in self.gate.env.items() if not key.startswith(("CUDA", "PYTHON"))}
        kept["TMPDIR"] = str(self.gate.path)  # what the script keeps goes with the test
        script = self.folder(name) / "repro.sh"
        return subprocess.run([script], cwd=elsewhere, env=kept, capture_output=True, text=True, check=False)

    def cell(self, name: str) -> dict[str, object]:
        told: dict[str, object] = json.loads((self.folder(name) / "cell.json").read_text())
        return told


def break_everything(folder: Path, libraries: Path, only: str = "") -> Broken:
    """Run the suite once, or the tests of it that are named as `-k` has it."""
    box = counting(cards=2)
    box = replace(box, cards=tuple(replace(card, at=LEAKS) for card in box.cards))
    gate = BoxGate(folder, libraries).on(box, BAD_CARD=box.cards[1].uuid, BREAKING="a word of honour")
    gate.suite(TESTS, CATALOG)
    done = gate.ran(*(("-k", only) if only else ()), gpus="all")
    return Broken(gate, done.stdout)
