"""A fault that is planted in what a real lowerer is given is found in the net, and the reproducer shows it alone."""

from __future__ import annotations

import os
import re
import shlex
import site
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs
import pytest

from fixtures.reference.nets import oracle
from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.lowerers.base import Array, LowererConfig, make_lowerer
from pytest_cudaboot.lowerers.build import build_shim
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.model import Json, to_json
from pytest_cudaboot.probes.compiler import Compiler, ask_version
from pytest_cudaboot.probes.store import ModuleStore
from pytest_cudaboot.probes.toolchain import find_cpu_plugin, find_iree_compile, package_folders
from pytest_cudaboot.rules.first_bad import find_first_bad
from pytest_cudaboot.rules.first_bad_facts import FirstBad
from pytest_cudaboot.rules.iree_target import choose_target
from pytest_cudaboot.rules.stablehlo_cut import Cut
from pytest_cudaboot.rules.stablehlo_text import read_function
from pytest_cudaboot.run.reproducer import versions_of, write_reproducer

REFERENCE = Path(__file__).parents[2] / "fixtures/reference"
PRIVATE = re.compile(rf"/(?:tmp|root|home|work|usr|var)/|\b{re.escape(socket.gethostname())}\b")
BUDGET = 120.0
Run = Callable[[Cut, Sequence[Array]], list[Array]]


@pytest.fixture(scope="module")
def plugin() -> Path:
    return find_cpu_plugin({}, [Path(folder) for folder in site.getsitepackages()]).path


@dataclass(frozen=True, slots=True)
class Xla:
    """A lowerer in a device process, which runs cuts.

    :param facts: what it says of itself.
    :param folder: private, for their texts.
    """

    process: DeviceProcess
    facts: Json
    folder: Path

    def run(self, cut: Cut, arrays: Sequence[Array]) -> list[Array]:
        path = self.folder / f"{cut.entry}.mlir"
        path.write_text(cut.text)
        opened = self.process.call("session_open", budget=BUDGET, path=str(path))["session"]
        made: list[Array] = self.process.call(
            "invoke", budget=BUDGET, session=opened, fn=cut.entry, arrays=list(arrays)
        )
        return made


def planted(cut: Cut, right: str, wrong: str) -> Cut:
    """A cut with a fault in it."""
    return replace(cut, text=cut.text.replace(right, wrong))


def find(entry: str, run: Run, lowerer: str) -> FirstBad:
    function = read_function((REFERENCE / f"nets/{entry}.mlir").read_text())
    found = find_first_bad(function, oracle.inputs(entry, 5), run, lowerer=lowerer, platform="cpu").bad
    assert found is not None
    return found


def said_of(folder: Path) -> str:
    """All texts of a reproducer."""
    return "".join(path.read_text() for path in sorted(folder.iterdir()) if path.suffix != ".npy")


def command(folder: Path) -> list[list[str]]:
    """The lines that its README gives, in words."""
    lines = (folder / "README.md").read_text().partition("To run it again:")[2].splitlines()
    return [shlex.split(line) for line in lines if line.startswith("    ")]


@pytest.fixture
def xla(device: Callable[..., DeviceProcess], plugin: Path, tmp_path: Path) -> Xla:
    """The XLA lowerer, open in a device process."""
    shim = build_shim(REFERENCE, platformdirs.user_cache_path("cudaboot") / "builds", env=os.environ)
    config = LowererConfig(
        name="xla",
        platform="cpu",
        shim=str(shim),
        plugin=str(plugin),
        environment={"PJRT_PLUGIN": str(plugin)},
    )
    process = device(**config.environment)
    return Xla(process, process.call("open", budget=BUDGET, config=to_json(config)), tmp_path)


@pytest.fixture
def modules(tmp_path: Path) -> Modules:
    """What IREE's compiler makes, kept for one test."""
    found = find_iree_compile({"PATH": ""}, Path(), package_folders())
    said, _ = ask_version(found.path, env=os.environ)
    compiler = Compiler(path=found.path, found_via=found.found_via, package=found.version, said=said)
    return Modules(
        ModuleStore(tmp_path / "modules"),
        choose_target("cpu", {}),
        name_of(compiler),
        program=compiler.path,
        env=dict(os.environ),
    )


def test_a_kernel_that_xla_is_given_transposed(xla: Xla, plugin: Path, tmp_path: Path) -> None:
    """Of 208 operations of `cifar8`'s train step, the one convolution; then by the reproducer, in a process of its own."""
    old, new = "%15 = stablehlo.convolution(%14, %W2) dim_numbers = [b, f, 0, 1]x[o, i, {}]", ("0, 1", "1, 0")
    right, wrong = (old.format(axes) for axes in new)

    bad = find("cifar8_train_step", lambda cut, arrays: xla.run(planted(cut, right, wrong), arrays), "xla")
    folder = write_reproducer(bad, tmp_path / "first-bad", versions=versions_of(xla.facts), platform="cpu")

    assert (bad.operation.name, bad.value, bad.alone) == ("stablehlo.convolution", "%15", True)
    assert not PRIVATE.search(said_of(folder))
    assert "PJRT C API: 0." in said_of(folder)
    assert command(folder) == [["PJRT_PLUGIN=/path/to/plugin.so", "python", "check.py"]]
    module = folder / "module.mlir"
    module.write_text(module.read_text().replace(right, wrong))
    checked = check(folder, plugin)
    found, was = map(float, re.findall(r"[\d.]+(?:e-?\d+)?", checked.stdout))
    assert checked.returncode == 1
    assert found == pytest.approx(was, rel=1e-3)


def check(folder: Path, plugin: Path) -> subprocess.CompletedProcess[str]:
    """What the reproducer's program for XLA says, as it is typed."""
    env = {**os.environ, "PJRT_PLUGIN": str(plugin)}
    return subprocess.run(
        [sys.executable, "check.py"], cwd=folder, env=env, check=False, capture_output=True, text=True
    )


def test_a_function_that_iree_is_given_another_of(modules: Modules, tmp_path: Path) -> None:
    lowerer = make_lowerer(LowererConfig(name="iree", platform="cpu"))

    def run(cut: Cut, arrays: Sequence[Array]) -> list[Array]:
        path = tmp_path / f"{cut.entry}.mlir"
        path.write_text(planted(cut, "stablehlo.log", "stablehlo.exponential").text)
        session = lowerer.open_session(modules.of(path).path, path)
        return session.invoke(cut.entry, arrays)

    bad = find("linear_train_step", run, "iree")
    folder = write_reproducer(
        bad, tmp_path / "first-bad", versions=versions_of(lowerer.facts()), platform="cpu"
    )

    assert (bad.operation.name, bad.alone) == ("stablehlo.log", True)
    assert not PRIVATE.search(said_of(folder))
    assert f"IREE commit: {modules.name.commit}" in said_of(folder)
    assert runs(folder)
    module = folder / "module.mlir"
    module.write_text(module.read_text().replace("stablehlo.log", "stablehlo.exponential"))
    assert not runs(folder)


def runs(folder: Path) -> bool:
    """Whether both of IREE's lines end well, as they are typed; the programs are those of this interpreter."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    compiling, running = command(folder)
    subprocess.run(compiling, cwd=folder, env=env, check=True)
    return subprocess.run(running, cwd=folder, env=env, check=False).returncode == 0
