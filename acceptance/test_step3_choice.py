"""Step 3: CUDA runtime FFI, which library is opened, and on which device. BOOTSTRAP.md#step-3-cuda-runtime-ffi-ffilibiree_ffiso"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.run.fixtures import Runner

SHIM = "libiree_ffi.so"


@pytest.fixture
def ask(run: Runner, iree_checkout: Path) -> Callable[..., Completed]:
    """A function that asks the trainer which shim it would use, in a process that sees no card."""
    unset: dict[str, str | None] = {
        "LEAN_MLIR_LOWERER": None,
        "LEAN_MLIR_LOWERER_SO": None,
        "LD_LIBRARY_PATH": None,
    }

    def which(**env: str) -> Completed:
        return run(
            ["./trainer", "--which"], cwd=iree_checkout, env={**unset, **env}, device=False, check=False
        )

    return which


def loaded(done: Completed) -> tuple[str, str]:
    """What loaded, and the file's name."""
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    return record["lowerer"], Path(record["shim"]).name


@pytest.mark.spec("step3.choice")
@pytest.mark.parametrize(
    ("env", "kind"),
    [
        pytest.param({}, "xla", id="no variable"),
        pytest.param({"LEAN_MLIR_LOWERER": ""}, "xla", id="empty is as unset"),
        pytest.param({"LEAN_MLIR_LOWERER": "xla"}, "xla", id="xla"),
        pytest.param({"LEAN_MLIR_LOWERER": "iree"}, "iree", id="iree"),
        pytest.param({"LEAN_MLIR_LOWERER_SO": f"ffi/{SHIM}"}, "iree", id="the file"),
    ],
)
def test_with_both_shims_the_one_asked_for_loads(
    ask: Callable[..., Completed], env: dict[str, str], kind: str
) -> None:
    assert loaded(ask(**env)) == (kind, SHIM if kind == "iree" else "libpjrt_ffi.so")


# > Without either, XLA is tried and then IREE, and if it came to that, a line says so and why.
@pytest.mark.spec("step3.choice")
@pytest.mark.parametrize("damage", ["gone", "corrupt"])
def test_where_xla_can_not_be_loaded_iree_is_and_a_line_says_why(
    ask: Callable[..., Completed], iree_checkout: Path, damage: str
) -> None:
    xla = iree_checkout / "ffi" / "libpjrt_ffi.so"
    xla.unlink()
    if damage == "corrupt":
        xla.write_bytes(b"\x7fELF, and then nothing of use")

    done = ask()

    assert loaded(done) == ("iree", SHIM)
    assert "the XLA shim can not be loaded, so it is" in done.stderr
    assert re.search(r"libpjrt_ffi\.so: (cannot open|file too short|invalid ELF header)", done.stderr)


@pytest.mark.spec("step3.choice", role="canary")
def test_under_the_other_ones_name_it_is_refused(ask: Callable[..., Completed], iree_checkout: Path) -> None:
    (iree_checkout / "ffi" / SHIM).rename(iree_checkout / "ffi" / "libpjrt_ffi.so")

    done = ask(LEAN_MLIR_LOWERER="xla")

    assert (done.returncode, done.stdout) == (1, "")
    assert "is not the XLA shim (it has no pjrt_ffi_marker)" in done.stderr


@pytest.mark.spec("step3.choice", role="canary")
@pytest.mark.parametrize("wanted", ["xla", "tpu"])
def test_the_file_beside_another_word_is_refused(ask: Callable[..., Completed], wanted: str) -> None:
    done = ask(LEAN_MLIR_LOWERER_SO=f"ffi/{SHIM}", LEAN_MLIR_LOWERER=wanted)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"'{wanted}'" in done.stderr or f"LEAN_MLIR_LOWERER={wanted}" in done.stderr


@pytest.mark.spec("step3.choice", role="canary")
def test_iree_asked_for_and_gone_does_not_fall_back(
    ask: Callable[..., Completed], iree_checkout: Path
) -> None:
    (iree_checkout / "ffi" / SHIM).unlink()

    done = ask(LEAN_MLIR_LOWERER="iree")

    assert (done.returncode, done.stdout) == (1, "")
    assert "wanted: iree" in done.stderr
    assert "Step 3 of BOOTSTRAP.md builds the IREE shim" in done.stderr


@pytest.fixture
def one_step(run: Runner, iree_checkout: Path) -> Callable[..., Completed]:
    """A function that has the trainer try one step through IREE, on a device by that name, with no card in sight."""

    def attempt(device: str | None, vmfb: str = "nowhere") -> Completed:
        env = {"LEAN_MLIR_LOWERER": "iree", "IREE_DEVICE": device}
        argv = ["./trainer", "linear", "data", "--steps", "1", "--vmfb", vmfb]
        return run(argv, cwd=iree_checkout, env=env, device=False, check=False)

    return attempt


@pytest.fixture
def any_module(iree_checkout: Path) -> str:
    """A folder with a file that passes for a module until its contents are read."""
    folder = iree_checkout / "modules"
    folder.mkdir()
    # The shortest archive that there is: its end alone, after a beginning.
    (folder / "linear_train_step.vmfb").write_bytes(b"PK\3\4" + bytes(26) + b"PK\5\6" + bytes(18))
    return folder.name


# > By default the shim opens the device `cuda`.
@pytest.mark.spec("step3.cuda-hal")
def test_unset_asks_for_cuda(one_step: Callable[..., Completed], any_module: str) -> None:
    done = one_step(None, any_module)

    assert done.returncode == 1
    assert "device 'cuda' (IREE_DEVICE): " in done.stderr


# > `IREE_DEVICE` names another, `local-task` for the CPU, and an empty one is
# > refused.
@pytest.mark.spec("step3.cuda-hal", role="canary")
@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("", r"IREE_DEVICE='' names no device; unset it for cuda"),
        ("nonsense", r"no HAL driver matching 'nonsense' \(IREE_DEVICE\); this shim was linked with: .*cuda"),
        ("hip", r"no HAL driver matching 'hip'"),
        ("CUDA", r"no HAL driver matching 'CUDA'"),
    ],
)
def test_another_device_is_refused_by_name(
    one_step: Callable[..., Completed], any_module: str, device: str, words: str
) -> None:
    done = one_step(device, any_module)

    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(words, done.stderr)


# > The trainer refuses a shim that lacks one of the ten, names the symbol, and runs nothing on it.
@pytest.mark.spec("step3.stale-run", role="canary")
def test_a_stale_shim_is_refused_at_run_time(
    run: Runner, sources: Path, trainer_program: Path, stand_in: Callable[..., Path]
) -> None:
    shutil.copy2(trainer_program, sources / "trainer")
    stand_in("stale.so", "HAL_CUDA", "LACKS_SOFTLABEL").rename(sources / "ffi" / SHIM)

    done = run(["./trainer", "linear", "data"], cwd=sources, env=IREE, device=False, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "missing 'iree_ffi_train_step_adam_softlabel' -- not a usable shim" in done.stderr


IREE: dict[str, str | None] = {"LEAN_MLIR_LOWERER": "iree", "LEAN_MLIR_LOWERER_SO": None}


@pytest.mark.spec("step3.stale-run")
def test_a_whole_one_is_taken(
    run: Runner, sources: Path, trainer_program: Path, stand_in: Callable[..., Path]
) -> None:
    shutil.copy2(trainer_program, sources / "trainer")
    stand_in("whole.so").rename(sources / "ffi" / SHIM)

    done = run(["./trainer", "--which"], cwd=sources, env=IREE, device=False)

    assert loaded(done) == ("iree", SHIM)
