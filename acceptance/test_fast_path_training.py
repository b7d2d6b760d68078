"""Fast path: XLA/PJRT, the part that trains. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.project import Project
from pytest_cudaboot.run.devices import Devices
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.worker import WORKER

from .conftest import SHIM, WITHOUT_AUTOTUNING, Trained
from .cuda import cuda_major
from .nets import convolving_net

SEED = 20
ACCURACY = 0.90
UNKNOWN_FLAG = "--xla_there_is_no_such_flag"
# Those whose own major is CUDA's; cuFFT, cuSOLVER and cuSPARSE count by themselves.
CUDA_LIBRARY = re.compile(r"lib(cudart|cublas|cublasLt|nvJitLink|nvrtc)\.so\.(\d+)")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a net is trained, and what it must know afterwards of digits that it has not seen."""

    options: tuple[str, ...] = ()
    steps: int = 300
    accuracy: float = ACCURACY


# > ./trainer cnn data --steps 800 --lr 0.3 --schedule tent --shift 3
RECIPES = {
    "cnn": Recipe(("--lr", "0.3", "--schedule", "tent", "--shift", "3"), steps=800, accuracy=0.96),
}


# Nets for what a step computes, or for images of another layout: their training is no matter of held-out digits.
OTHERS = frozenset({"bn_nchw", "cifar8", "cifar8_bn", "ln_nchw", "many"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`learner`: each net that is trained on the project's digits until it knows those that it has not seen."""
    if "learner" in metafunc.fixturenames:
        nets = metafunc.config.stash[WORKER].plan.nets
        metafunc.parametrize("learner", [name for name in nets if name not in OTHERS])


# > It prints a header that says the lowerer, the platform and the UUID of the device that it runs on,
# > then one record a step, then the accuracy on images that it has not seen: the loss falls, and after 300 steps `linear`
# > knows at least 0.90 of the held-out digits.
@pytest.mark.spec("fast.trains")
def test_trains_on_the_device_that_it_was_pinned_to(
    train: Callable[..., Trained], learner: str, device: str, checkout: Path, measure: Callable[..., None]
) -> None:
    recipe = RECIPES.get(learner, Recipe())

    trained = train(learner, "--steps", str(recipe.steps), *recipe.options)

    assert trained.header["device"] == device
    assert Path(trained.header["shim"]).samefile(checkout / "ffi" / SHIM)
    assert len(trained.steps) == trained.evaluation["steps"] == recipe.steps
    assert sum(trained.losses[-20:]) < 0.5 * sum(trained.losses[:20])
    assert trained.evaluation["accuracy"] >= recipe.accuracy
    measure(**{f"{learner}_accuracy": trained.evaluation["accuracy"], f"{learner}_loss": trained.losses[-1]})


@pytest.mark.spec("fast.trains")
def test_a_run_that_learns_nothing_would_be_seen(train: Callable[..., Trained]) -> None:
    frozen = train("linear", "--steps", "40", "--lr", "0")

    assert sum(frozen.losses[-20:]) > 0.9 * sum(frozen.losses[:20])
    assert frozen.evaluation["accuracy"] < ACCURACY


# > This path reads neither `IREE_BACKEND` nor `IREE_CHIP`, and needs no chip table.
@pytest.mark.spec("fast.no-iree-env")
def test_iree_variables_change_nothing(train: Callable[..., Trained], device: str) -> None:
    fixed: dict[str, str | None] = {} if device == "cpu" else {"XLA_FLAGS": WITHOUT_AUTOTUNING}
    nonsense = {**fixed, "IREE_BACKEND": "nonsense", "IREE_CHIP": "nonsense"}
    unset = {**fixed, "IREE_BACKEND": None, "IREE_CHIP": None}

    assert train("mlp", "--steps", "20", env=nonsense).steps == train("mlp", "--steps", "20", env=unset).steps


# > No Python interpreter takes part in the training, and JAX is imported by nobody
@pytest.mark.spec("fast.no-python")
def test_no_interpreter_in_the_process_that_trains(mapped_while_training: Callable[..., list[str]]) -> None:
    assert _python(mapped_while_training()) == []


@pytest.mark.spec("fast.no-python", role="canary")
def test_an_interpreter_would_be_seen(
    mapped_while_training: Callable[..., list[str]], stand_in: Callable[..., Path]
) -> None:
    interpreter = stand_in("libpython3.so")

    assert _python(mapped_while_training(env={"LD_PRELOAD": str(interpreter)})) == [str(interpreter)]


# > **XLA is what runs by default
@pytest.mark.spec("fast.default-lowerer")
def test_xla_trains_by_default(
    mapped_while_training: Callable[..., list[str]], checkout: Path, stand_in: Callable[..., Path]
) -> None:
    stand_in("libiree_ffi.so").rename(checkout / "ffi" / "libiree_ffi.so")
    unset: dict[str, str | None] = {"LEAN_MLIR_LOWERER": None, "LEAN_MLIR_LOWERER_SO": None}

    mapped = mapped_while_training(env=unset)

    shims = [path for path in mapped if Path(path).parent == checkout / "ffi"]
    assert shims == [str(checkout / "ffi" / "libpjrt_ffi.so")]


# > The plugin itself reads `XLA_FLAGS`,
# > and a flag that it does not know aborts the process: leave it unset, so that the environment does not change the program.
@pytest.mark.spec("fast.xla-flags")
def test_the_pinned_environment_drops_xla_flags(run: Runner, tmp_path: Path) -> None:
    outer = {"PATH": os.defpath, "XLA_FLAGS": UNKNOWN_FLAG}
    pinned = Devices(outer, None, tmp_path, "outer").environment
    shown = run(["env"], env=pinned).stdout + run(["env"]).stdout

    assert [line for line in shown.splitlines() if line.startswith(("XLA_FLAGS=", "TF_XLA_FLAGS="))] == []
    assert pinned["PATH"] == os.defpath, "nothing of the caller's environment got through at all"


@pytest.mark.spec("fast.xla-flags", role="canary")
def test_an_unknown_xla_flag_aborts_the_process(run: Runner, checkout: Path, pjrt_plugin: Path) -> None:
    done = run(
        ["./trainer", "linear", "data", "--steps", "2"],
        cwd=checkout,
        env={"PJRT_PLUGIN": str(pjrt_plugin), "XLA_FLAGS": UNKNOWN_FLAG},
        check=False,
    )

    assert done.returncode in {1, -signal.SIGABRT}  # by version
    assert done.stdout == ""
    assert f"Unknown flag in XLA_FLAGS: {UNKNOWN_FLAG}" in done.stderr


@pytest.mark.spec("fast.vendor-kernels")
def test_vendor_libraries_are_mapped(
    session: Callable[[Path], SessionHandle],
    lowerer: LowererHandle,
    project: Project,
    measure: Callable[..., None],
) -> None:
    net = convolving_net(project)
    session(net.step.path).invoke(net.step.inputs(SEED))
    mapped = lowerer.mapped()
    found = {vendor for vendor in ("cublas", "cudnn") for name in mapped if name.startswith(f"lib{vendor}")}

    measure(**{f"{net.name}_vendor_libraries": sorted(found)})
    assert found == {"cublas", "cudnn"}


# > Keep them to one CUDA major: the plugin runs on
# > a mixture without a word.
@pytest.mark.spec("fast.cuda-libs")
def test_cuda_libraries_are_of_the_plugins_major(
    session: Callable[[Path], SessionHandle],
    lowerer: LowererHandle,
    project: Project,
    pjrt_plugin: Path,
    evidence: Evidence,
) -> None:
    net = convolving_net(project)
    session(net.step.path).invoke(net.step.inputs(SEED))
    mapped = lowerer.mapped()

    table = {
        path: int(match[2])
        for paths in mapped.values()
        for path in paths
        if (match := CUDA_LIBRARY.search(path))
    }
    evidence.note(cuda_libraries=table)
    assert table, f"no CUDA library is mapped: {sorted(mapped)}"
    plugin = cuda_major(lowerer.call("facts"), pjrt_plugin)
    evidence.measure(plugin_major=plugin or "unknown", mapped_majors=sorted(set(table.values())))
    assert plugin is not None, f"neither {pjrt_plugin} nor its path says of which CUDA it is"
    foreign = {path: major for path, major in table.items() if major != plugin}
    if foreign:
        raise BoxError(f"{pjrt_plugin} is of CUDA {plugin}, and the process mapped {foreign!r}")


def _python(mapped: list[str]) -> list[str]:
    """What an interpreter, or a package other than the plugin and its CUDA libraries, has brought."""
    packages = re.compile(r"/site-packages/(?!jax_plugins/|xla_plugins/|lammps_jax_pjrt_cpu/|nvidia/)")
    return [path for path in mapped if "libpython" in path or packages.search(path)]
