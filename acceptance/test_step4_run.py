"""Step 4: Run recipe, the command itself. BOOTSTRAP.md#step-4-run-recipe-cuda"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner

from .conftest import SHIM, Trained

FEW = ("--steps", "3")
TOOLKIT_PATH = "/usr/local/cuda/lib64"


@pytest.fixture
def recipe(documented: Callable[[str], list[str]]) -> list[str]:
    """The documented command, for a few steps instead of all of them."""
    words = documented("CUDA_VISIBLE_DEVICES=0 ./trainer mlp")
    return [*words[: words.index("--steps")], *FEW]


# > Run it from this folder
@pytest.mark.spec("step4.run")
def test_the_recipe_trains(
    run: Runner, recipe: list[str], checkout: Path, pjrt_plugin: Path, device: str, evidence: Evidence
) -> None:
    trained = Trained.read(run(recipe, cwd=checkout, env={"PJRT_PLUGIN": str(pjrt_plugin)}))

    told = trained.header["device"]
    evidence.ran_on(trained.header["platform"], [] if told == "cpu" else [told])
    assert told == device
    assert len(trained.steps) == int(FEW[1])


# > the shim, the graphs and `.venv` are found relative to the working directory
@pytest.mark.spec("step4.cwd")
def test_from_the_projects_folder_the_shim_is_found(run: Runner, checkout: Path) -> None:
    told = json.loads(run(["./trainer", "--which"], cwd=checkout, device=False).stdout)

    assert (checkout / told["shim"]).samefile(checkout / "ffi" / SHIM)


@pytest.mark.spec("step4.cwd", role="canary")
def test_from_elsewhere_a_miss_says_what_and_where(run: Runner, checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    program = checkout / "trainer"

    which = run([program, "--which"], cwd=elsewhere, device=False, check=False)
    trainer = run([program, "mlp", checkout / "data", *FEW], cwd=elsewhere, device=False, check=False)

    assert (which.returncode, trainer.returncode) == (1, 1)
    assert re.search(
        rf"no shim \(wanted: [^)]*\)\. Tried, in order, in {re.escape(str(elsewhere))}", which.stderr
    )
    assert "nets/mlp_train_step.mlir: No such file" in trainer.stderr


# > The data folder is
# > the second argument, and a wrong one is refused by name.
@pytest.mark.spec("step4.data-arg")
def test_the_second_argument_is_where_the_data_is(
    run: Runner, checkout: Path, pjrt_plugin: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(checkout / "data", moved)

    trained = Trained.read(
        run(["./trainer", "linear", moved, *FEW], cwd=checkout, env={"PJRT_PLUGIN": str(pjrt_plugin)})
    )

    assert len(trained.steps) == int(FEW[1])


@pytest.mark.spec("step4.data-arg", role="canary")
def test_a_wrong_data_folder_is_refused_by_name(
    run: Runner, checkout: Path, pjrt_plugin: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "no-data-here"

    done = run(
        ["./trainer", "linear", wrong, *FEW],
        cwd=checkout,
        env={"PJRT_PLUGIN": str(pjrt_plugin)},
        device=False,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert str(wrong) in done.stderr


# > A directory on `LD_LIBRARY_PATH` that has a `libpjrt_ffi.so` comes before `ffi/`.
@pytest.mark.spec("step4.ld-path")
def test_an_injected_shim_is_the_one_that_is_driven(run: Runner, checkout: Path, injected: Path) -> None:
    env = {"LD_LIBRARY_PATH": os.pathsep.join([str(injected.parent), TOOLKIT_PATH])}

    told = json.loads(run(["./trainer", "--which"], cwd=checkout, env=env, device=False).stdout)

    assert Path(told["shim"]).samefile(injected)


@pytest.mark.spec("step4.ld-path", role="canary")
def test_an_export_that_overwrites_loses_it(run: Runner, checkout: Path, injected: Path) -> None:
    """The recipe of the field exports the toolkit's folder alone: whatever was on the path before is gone."""
    env = {"LD_LIBRARY_PATH": TOOLKIT_PATH}

    told = json.loads(run(["./trainer", "--which"], cwd=checkout, env=env, device=False).stdout)

    assert not (checkout / told["shim"]).samefile(injected)
    assert (checkout / told["shim"]).samefile(checkout / "ffi" / SHIM)


@pytest.fixture
def injected(pjrt_shim: Path, tmp_path: Path) -> Path:
    """A second copy of the shim, in a folder of its own."""
    folder = tmp_path / "injected"
    folder.mkdir()
    return Path(shutil.copy2(pjrt_shim, folder / SHIM))


# > **XLA is what runs by default
@pytest.mark.spec("step4.iree-really")
def test_as_it_is_printed_the_recipe_runs_xla(
    run: Runner, recipe: list[str], checkout: Path, pjrt_plugin: Path, evidence: Evidence
) -> None:
    before = set(checkout.rglob("*.vmfb"))

    trained = Trained.read(run(recipe, cwd=checkout, env={"PJRT_PLUGIN": str(pjrt_plugin)}))

    evidence.measure(lowerer_that_ran=trained.header["lowerer"])
    assert trained.header["lowerer"] == "xla"
    assert set(checkout.rglob("*.vmfb")) == before


# > such a
# > request never falls back
@pytest.mark.spec("step4.iree-really", role="canary")
def test_asked_for_iree_it_never_trains_on_xla(
    run: Runner, recipe: list[str], checkout: Path, pjrt_plugin: Path
) -> None:
    env = {"PJRT_PLUGIN": str(pjrt_plugin), "LEAN_MLIR_LOWERER": "iree"}

    done = run(recipe, cwd=checkout, env=env, device=False, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "no shim (wanted: iree)" in done.stderr
