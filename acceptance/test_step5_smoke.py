"""Step 5: Smoke test, the part that trains. BOOTSTRAP.md#step-5-smoke-test"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.traces import read_trace
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.handles import SessionHandle
from pytest_cudaboot.run.nets import load_net

from .conftest import WITHOUT_AUTOTUNING, Trained

STEPS = 30
NETS = ("cifar8", "cifar8_bn")
SEED = 5
# What trainers of the field leave beside their artifacts, and resume from unasked.
LEFT_BEHIND = (
    *("data/linear.ckpt", "data/linear.epoch", "nets/linear_ckpt.bin", "linear_ckpt_xla.bin"),
    *(".lake/build/linear_default_ckpt.bin", ".lake/build/linear_default_ckpt_xla.bin.epoch"),
)
CRASHING = "void *GetPjrtApi(void) { __builtin_trap(); }\n"


@pytest.fixture
def coloured(project: Project) -> dict[str, Any]:
    """The project's own script for its digits in CIFAR-10's layout, as it would run."""
    script = project.data / "coloured.py"
    return runpy.run_path(str(script))


@pytest.fixture
def smoke_data(checkout: Path, project: Project, coloured: dict[str, Any]) -> Path:
    """The checkout's data folder with the batches in it; the project itself is only read."""
    data = checkout / "data"
    data.unlink()
    data.mkdir()
    for path in project.data.glob("*-ubyte"):
        (data / path.name).symlink_to(path)
    coloured["write"](data)
    return data


def batches(records: list[bytes], size: int, count: int) -> list[tuple[Any, Any]]:
    """Images and one-hot labels, in the file's order, from the start again at its end."""
    images = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)
    made = []
    for number in range(count):
        rows = images[np.arange(number * size, (number + 1) * size) % len(images)]
        pixels = (rows[:, 1:] / np.float32(255)).astype(np.float32)
        made.append((pixels, np.eye(10, dtype=np.float32)[rows[:, 0]]))
    return made


# > the loss falls to
# > less than half within 60 steps
@pytest.mark.spec("step5.trains")
@pytest.mark.parametrize("name", NETS)
def test_the_loss_falls_on_real_images(
    session: Callable[[Path], SessionHandle],
    project: Project,
    coloured: dict[str, Any],
    name: str,
    evidence: Evidence,
) -> None:
    step = load_net(project, name).step
    given, *parameters, rate, _ = step.inputs(SEED)
    opened, losses = session(step.path), []

    for pixels, onehot in batches(coloured["records"]("train"), len(given), STEPS):
        *parameters, loss = opened.invoke([pixels, *parameters, rate, onehot])
        losses.append(float(loss))

    evidence.measure(**{f"{name}_first_loss": losses[0], f"{name}_loss": mean(losses[-5:])})
    assert all(np.isfinite(parameter).all() for parameter in parameters)
    assert mean(losses[-5:]) < 0.8 * mean(losses[:5])


@pytest.mark.spec("step5.trains")
def test_with_a_rate_of_zero_it_would_not_fall(
    session: Callable[[Path], SessionHandle], project: Project, coloured: dict[str, Any]
) -> None:
    step = load_net(project, NETS[1]).step
    given, *parameters, rate, _ = step.inputs(SEED)
    opened, losses = session(step.path), []

    for pixels, onehot in batches(coloured["records"]("train"), len(given), 10):
        *parameters, loss = opened.invoke([pixels, *parameters, np.zeros_like(rate), onehot])
        losses.append(float(loss))

    assert mean(losses[-5:]) > 0.9 * mean(losses[:5])


# > ./trainer cifar8_bn data --steps 60
@pytest.mark.spec("step5.native")
def test_the_trainer_reads_the_layout_and_trains(
    train: Callable[..., Trained], smoke_data: Path, device: str, measure: Callable[..., None]
) -> None:
    trained = train("cifar8_bn", "--steps", "60")

    assert (smoke_data / "cifar-10").is_dir()
    assert trained.header["device"] == device
    assert trained.header["dataset"]["channels"] == 3
    assert mean(trained.losses[-10:]) < 0.5 * mean(trained.losses[:10])
    measure(cifar8_bn_accuracy=trained.evaluation["accuracy"])


# > A run always starts fresh: its steps count from 0, and what an earlier run left behind, a
# > checkpoint or the mark of an epoch, is not read.
@pytest.mark.spec("step5.ckpt")
def test_what_was_left_behind_changes_nothing(
    train: Callable[..., Trained], checkout: Path, smoke_data: Path, device: str
) -> None:
    assert smoke_data.is_dir()
    fixed: dict[str, str | None] = {} if device == "cpu" else {"XLA_FLAGS": WITHOUT_AUTOTUNING}
    clean = train("linear", "--steps", "5", env=fixed)
    for name in LEFT_BEHIND:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("999\n")

    again = train("linear", "--steps", "5", env=fixed)

    assert [step["step"] for step in again.steps] == [0, 1, 2, 3, 4]
    assert again.header["config"]["steps"] == again.evaluation["steps"] == 5
    assert again.steps == clean.steps


@pytest.mark.spec("step5.ckpt", role="canary")
def test_a_run_of_no_steps_is_refused(run: Runner, checkout: Path) -> None:
    done = run(["./trainer", "linear", "data", "--steps", "0"], cwd=checkout, device=False, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--steps 0: not an option with a good value" in done.stderr


@pytest.mark.spec("step5.ckpt", role="canary")
@pytest.mark.parametrize(
    ("first", "words"),
    [
        pytest.param(999, "step 999 stands where step 0 belongs", id="resumed"),
        pytest.param(None, "no step; there is nothing to compare", id="trained nothing"),
    ],
)
def test_a_run_that_resumes_would_be_seen(run: Runner, tmp_path: Path, first: int | None, words: str) -> None:
    """A stand-in that finds a mark, goes on where it left off, and exits with 0."""
    program = tmp_path / "resuming"
    step = "" if first is None else f"""echo '{{"kind":"step","step":{first},"loss":0.1}}'\n"""
    program.write_text(f"""#!/bin/sh\necho '{{"kind":"header"}}'\n{step}echo '{{"kind":"eval"}}'\n""")
    program.chmod(0o755)

    done = run([str(program)], device=False)

    assert done.returncode == 0
    with pytest.raises(UsageError, match=words):
        read_trace("the run", done.stdout)


@pytest.fixture
def crash(run: Runner, checkout: Path, tmp_path: Path) -> Callable[[str], Completed]:
    """A function that runs a shell line in which `$TRAINER` is one that crashes as soon as it asks for its plugin."""
    source, plugin = tmp_path / "crashing.c", tmp_path / "crashing.so"
    source.write_text(CRASHING)
    run(["gcc", "-shared", "-fPIC", source, "-o", plugin], device=False)

    def crashed(line: str) -> Completed:
        env: dict[str, str | None] = {
            "PJRT_PLUGIN": str(plugin),
            "TRAINER": "./trainer linear data --steps 2",
        }
        return run(["bash", "-c", line], cwd=checkout, env=env, device=False, check=False)

    return crashed


# > A trainer that crashes has no exit status of 0
@pytest.mark.spec("step5.exit")
@pytest.mark.parametrize("line", ["exec $TRAINER", "set -o pipefail; $TRAINER 2>&1 | tee log"])
def test_a_crash_is_no_success(crash: Callable[[str], Completed], line: str) -> None:
    assert crash(line).returncode not in {0, 1, 2}, "this is no crash, but a refusal"


# > but piped into `tee` it is
# > `tee`'s status that a shell sees, unless it was told `set -o pipefail`
@pytest.mark.spec("step5.exit", role="canary")
def test_without_pipefail_a_pipe_hides_it(crash: Callable[[str], Completed]) -> None:
    """And what was printed does not pass for a run all the same."""
    done = crash("set -e; $TRAINER 2>&1 | tee log")

    assert done.returncode == 0
    with pytest.raises((ValueError, AssertionError)):
        Trained.read(done)
