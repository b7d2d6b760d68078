"""The trainer, end to end: it trains on what the shim runs on, and says where that was."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest

from tests.ffi.helpers import PLUGINS, ROOT, Json, build, fake_driver, run, site_file, train


def records(done: subprocess.CompletedProcess[str]) -> list[Json]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("plugin", "net"), [*itertools.product(PLUGINS, ["linear", "mlp"]), ("lammps", "cnn")]
)
def test_it_trains(trainer: Path, root: Path, data: Path, plugin: str, net: str) -> None:
    """The suite itself trains cnn through the other plugin, in `fast.trains`."""
    chosen = site_file(*PLUGINS[plugin])
    header, *steps, end = records(
        train(trainer, root, chosen, net, str(data), "--steps", "60", "--lr", "0.1")
    )

    assert (header["kind"], header["net"], header["lowerer"]) == ("header", net, "xla")
    assert header["shim"] == str(root / "ffi/libpjrt_ffi.so")
    assert (header["device"], header["platform"]) == ("cpu", "cpu")
    assert header["parameters"] == {"cnn": 9536, "linear": 7850, "mlp": 109386}[net]
    assert [(s["kind"], s["step"]) for s in steps] == [("step", i) for i in range(60)]
    assert steps[-1]["loss"] < steps[0]["loss"] / 4
    assert all(s["update_norm"] > 0 for s in steps)
    assert (end["kind"], end["images"], end["steps"]) == ("eval", 150, 60)
    assert end["accuracy"] > 0.95


def test_header_describes_the_program(trainer: Path, root: Path, data: Path, cpu_plugin: Path) -> None:
    argv = ("linear", str(data), "--steps", "1", "--seed", "9", "--lr", "0.25")

    header = records(train(trainer, root, cpu_plugin, *argv))[0]

    assert header["config"] == {
        "steps": 1,
        "seed": 9,
        "lr": 0.25,
        "schedule": "constant",
        "shift": 0,
        "batch": 128,
    }
    assert {k: header["dataset"][k] for k in ("train_images", "test_images", "rows", "columns")} == {
        "train_images": 300,
        "test_images": 150,
        "rows": 28,
        "columns": 28,
    }
    assert set(header["artifacts"]) == {"train_step", "fwd"}
    assert len(header["dataset"]["fingerprint"]) == 16


def traced(done: subprocess.CompletedProcess[str]) -> list[Json]:
    return [{k: v for k, v in record.items() if k != "pid"} for record in records(done)]


def test_the_seed_decides(trainer: Path, root: Path, data: Path, cpu_plugin: Path) -> None:
    runs = [
        traced(train(trainer, root, cpu_plugin, "linear", str(data), "--steps", "3", "--seed", seed))
        for seed in ("5", "5", "6")
    ]

    assert runs[0] == runs[1]
    assert runs[0][1]["loss"] != runs[2][1]["loss"]


INITIALISED = """
#define main trainer_main
#include "ffi/trainer.c"
#undef main
int main(void) {
  failure why = {0, ""};
  uint64_t state = 1;
  net n;
  int i;
  int64_t k;
  if (net_read("cnn", &n, &why) != 0) return 1;
  initialise(&n, &state);
  for (i = 0; i < n.num_parameters; i++) {
    double sum = 0.0;
    for (k = 0; k < n.step.sig.outputs[i].count; k++, n.parameters++)
      sum += (double)*n.parameters * (double)*n.parameters;
    printf("%.6f\\n", sqrt(sum / (double)k));
  }
  return 0;
}
"""


def test_weights_start_by_how_much_goes_into_a_sum(project: Path) -> None:
    """A kernel's nine places and its input channels count, its output channels do not; biases are zero."""
    (project / "initialised.c").write_text(INITIALISED)
    build("gcc", "initialised.c", "-ldl", "-lm", "-o", "initialised", cwd=project)

    w0, b0, w1, b1, w2, b2 = map(float, run(project / "initialised", cwd=project).stdout.split())

    assert (b0, b1, b2) == (0, 0, 0)
    assert w0 == pytest.approx((2 / 9) ** 0.5, rel=0.3)  # of 36 numbers alone
    assert w1 == pytest.approx((2 / (4 * 9)) ** 0.5, rel=0.1)
    assert w2 == pytest.approx((2 / 882) ** 0.5, rel=0.05)


def test_learning_rate_of_zero_moves_nothing(trainer: Path, root: Path, data: Path, cpu_plugin: Path) -> None:
    _, *steps, end = records(
        train(trainer, root, cpu_plugin, "linear", str(data), "--steps", "4", "--lr", "0")
    )

    assert all(s["update_norm"] == 0 for s in steps)
    assert end["accuracy"] < 0.5


def test_tent_rises_and_falls(trainer: Path, root: Path, data: Path, cpu_plugin: Path) -> None:
    """A linear net on images that hardly change its gradient moves about as far as its rate says."""
    argv = ("linear", str(data), "--steps", "20", "--lr", "1e-4", "--schedule", "tent")

    header, *steps, _ = records(train(trainer, root, cpu_plugin, *argv))
    moved = [s["update_norm"] for s in steps]

    assert header["config"]["schedule"] == "tent"
    assert moved[0] == pytest.approx(moved[2] / 3, rel=0.1)
    assert moved[-1] == pytest.approx(moved[3] / 17, rel=0.1)
    assert max(moved[:2] + moved[4:]) < max(moved[2:4])


def test_shift_moves_the_images_that_are_trained_on(
    trainer: Path, root: Path, data: Path, cpu_plugin: Path
) -> None:
    losses = {}
    for shift in ("0", "3"):
        argv = ("linear", str(data), "--steps", "40", "--shift", shift)
        header, *steps, end = records(train(trainer, root, cpu_plugin, *argv))
        losses[shift] = steps[-1]["loss"]
        assert header["config"]["shift"] == int(shift)
        assert end["accuracy"] > 0.9  # what is held out stays where it is

    assert losses["3"] > 1.5 * losses["0"]


def test_explosion_is_no_success(trainer: Path, root: Path, data: Path, cpu_plugin: Path) -> None:
    done = train(trainer, root, cpu_plugin, "mlp", str(data), "--steps", "50", "--lr", "1e30")

    assert done.returncode == 1
    assert "the loss or the update is not finite" in done.stderr
    assert '"kind":"eval"' not in done.stdout


def test_plugin_that_is_missing_is_no_fallback(trainer: Path, root: Path, data: Path) -> None:
    done = train(trainer, root, Path("/nowhere.so"), "linear", str(data))

    assert (done.returncode, done.stdout) == (1, "")
    assert "PJRT_PLUGIN='/nowhere.so' can not be opened" in done.stderr
    assert "the xla shim made no session of it" in done.stderr


def test_failing_step_ends_it(trainer: Path, root: Path, data: Path, tiny: Path) -> None:
    done = train(
        trainer, root, tiny, "linear", str(data), LD_LIBRARY_PATH=fake_driver(root), TINY_FAIL_EVENT="execute"
    )

    assert done.returncode == 1
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["header"]
    assert "m.linear_train_step: the xla shim answered 3" in done.stderr


# ---- on which device


def test_card_is_named_by_the_driver(trainer: Path, root: Path, data: Path, tiny: Path) -> None:
    """The tiny plugin's platform is no CPU, so the driver is asked."""
    settings = {"LD_LIBRARY_PATH": fake_driver(root)}

    header = records(train(trainer, root, tiny, "linear", str(data), "--steps", "1", **settings))[0]

    assert (header["platform"], header["device"]) == ("tiny", "GPU-28292a2b-2c2d-2e2f-3031-323334353637")


@pytest.mark.parametrize(
    ("ordinals", "words"), [(None, "libcuda.so.1: cannot open"), (0, "does not tell the device's UUID")]
)
def test_card_without_a_name_is_no_success(
    trainer: Path, root: Path, data: Path, tiny: Path, ordinals: int | None, words: str
) -> None:
    settings = {} if ordinals is None else {"LD_LIBRARY_PATH": fake_driver(root, ordinals)}

    done = train(trainer, root, tiny, "linear", str(data), "--steps", "1", **settings)

    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr


def test_reference_data_and_nets_reach_nine_tenths(trainer: Path, root: Path, cpu_plugin: Path) -> None:
    data = ROOT / "fixtures/reference/data"

    *_, end = records(train(trainer, root, cpu_plugin, "linear", str(data)))

    assert end["accuracy"] > 0.9
