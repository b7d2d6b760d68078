"""Runs of real workers on four simulated cards, whose tests sleep; and plain pytest-xdist on the same tests."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fixtures.boxes import replay

ROOT = Path(__file__).resolve().parents[1]
CARDS = 4
CLOCK = """
import os, time, pytest
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    began = time.time()
    try:
        return (yield)
    finally:
        with open(os.environ["TIMES"], "a") as stream:
            stream.write(f"{began} {time.time()}\\n")
"""
SLEEPER = """
@pytest.mark.spec("a.{name}")
@pytest.mark.parametrize("seconds", {seconds}, ids=range({count}))
def test_{name}(seconds, {fixture}, measure):
    time.sleep(seconds)
    measure(slept=seconds)
"""
PLAIN = """
@pytest.mark.parametrize("seconds", {seconds}, ids=range({count}))
def test_{name}(seconds):
    time.sleep(seconds)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sleepers:
    """A spec of tests that sleep."""

    name: str
    seconds: tuple[float, ...]
    cards: int = 1
    needs: str | None = None

    def test(self, template: str) -> str:
        fixture = "gpu" if self.cards == 1 else "gpus"
        return template.format(name=self.name, seconds=self.seconds, count=len(self.seconds), fixture=fixture)

    @property
    def table(self) -> str:
        needs = f'needs = ["a.{self.needs}"]\n' if self.needs else ""
        head = f'[a.{self.name}]\nkind = "step"\ntitle = "T"\nheading = "H"\non = "any"\n'
        return f'{head}when = ["gpus:{self.cards}"]\n{needs}'


def simple(seed: int = 0) -> list[Sleepers]:
    """Ten tests a card, 0.2 to 2 s, and nothing that waits."""
    dice = random.Random(seed)
    return [Sleepers(name="sleep", seconds=tuple(round(dice.uniform(0.2, 2.0), 2) for _ in range(40)))]


def whole(seed: int = 0) -> list[Sleepers]:
    """The same with gangs of two and of all, and a chain."""
    chain = [("first", 1.0, None), ("second", 1.5, "first"), ("third", 1.0, "second")]
    return [
        *simple(seed),
        Sleepers(name="pair", seconds=(1.5, 0.8), cards=2),
        Sleepers(name="all", seconds=(1.0,), cards=CARDS),
        *(Sleepers(name=name, seconds=(seconds,), needs=need) for name, seconds, need in chain),
    ]


def least(specs: list[Sleepers]) -> float:
    """The bound: longest, chain, card-seconds over cards."""
    chain = sum(max(spec.seconds) for spec in specs if spec.needs or spec.name == "first")
    load = sum(spec.cards * sum(spec.seconds) for spec in specs) / CARDS
    return max(load, chain, *(max(spec.seconds) for spec in specs))


def count(specs: list[Sleepers]) -> int:
    return sum(len(spec.seconds) for spec in specs)


class Place:
    """A folder with the stand-ins of a box of eight cards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        libraries = replay.build(folder / "libraries")
        plugin = libraries / "tiny_plugin.so"
        source = ROOT / "tests" / "run" / "tiny_cuda.c"
        subprocess.run(["/usr/bin/env", "gcc", "-fPIC", "-shared", source, "-o", plugin], check=True)
        box = replay.read(ROOT / "fixtures" / "boxes" / "invented-eight.box")
        self._env = os.environ | replay.lay_out(box, folder / "box", libraries)
        self._env |= {"PYTHONPATH": str(ROOT), "CUDABOOT_LEASE_DIR": str(folder / "leases")}
        self._env |= {"PJRT_PLUGIN": str(plugin), "CUDABOOT_HISTORY": str(folder / "history")}

    def ours(self, specs: list[Sleepers]) -> float:
        """Seconds of a run by the plugin; the first one of a set learns what each test takes."""
        suite = self._suite("ours", specs, SLEEPER)
        (suite / "catalog.toml").write_text("\n".join(spec.table for spec in specs))
        return self._run(suite, count(specs), "--gpus", f"0-{CARDS - 1}")

    def plain(self, specs: list[Sleepers]) -> float:
        """Seconds of a run by pytest-xdist alone."""
        words = ("-p", "no:cudaboot", "-n", str(CARDS), "--dist", "load")
        return self._run(self._suite("plain", specs, PLAIN), count(specs), *words)

    def _suite(self, name: str, specs: list[Sleepers], template: str) -> Path:
        suite = self._folder / f"{name}-{len(specs)}"
        suite.mkdir(exist_ok=True)
        (suite / "pytest.ini").write_text("[pytest]\n")
        (suite / "conftest.py").write_text(CLOCK)
        tests = "".join(spec.test(template) for spec in specs)
        (suite / "test_sleep.py").write_text("import time, pytest\n" + tests)
        return suite

    def _run(self, suite: Path, wanted: int, *words: str) -> float:
        """From the begin of the first test to the end of the last one."""
        times = suite / "times"
        times.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, "."]
        done = subprocess.run(
            argv,
            cwd=suite,
            env=self._env | {"TIMES": str(times)},
            check=False,
            capture_output=True,
            text=True,
        )
        lines = [line.split() for line in times.read_text().splitlines()] if times.exists() else []
        if len(lines) != wanted:
            raise SystemExit(f"{len(lines)} of {wanted} tests ran:\n{done.stdout}{done.stderr}")
        return max(float(end) for _, end in lines) - min(float(begin) for begin, _ in lines)
