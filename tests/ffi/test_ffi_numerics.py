"""The shim over real plugins: what comes out is what the module says, on one device and over replicas."""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fixtures.reference.nets import oracle
from pytest_cudaboot.rules.controls import require_controls
from pytest_cudaboot.rules.numerics import compare
from pytest_cudaboot.rules.tolerances import load_tolerances
from tests.ffi.helpers import PLUGINS, Child, Json, create, invoke, site_file, tensor

Array = npt.NDArray[np.float64]
NETS = sorted(entry.removesuffix("_fwd") for entry in oracle.ORACLES if entry.endswith("_fwd"))
# `fast.oracle` holds every net to its oracle on the other plugin, which is the CPU's in each run without cards.
ON_BOTH = {"linear", "mlp", "bn_nchw", "ln_nchw"}
# The shim is on trial and not the plugin's optimiser, which takes longer than all the rest.
UNOPTIMISED = "--xla_backend_optimization_level=0"
PAIRS = [*(("lammps", net) for net in NETS), *(("xla_cpu_pjrt", net) for net in NETS if net in ON_BOTH)]


def given(array: npt.NDArray[np.floating[Any]]) -> Json:
    return {"dims": list(array.shape), "raw": base64.b64encode(array.astype(np.float32).tobytes()).decode()}


def linear_step(x: Array, w: Array, b: Array, lr: float, onehot: Array) -> tuple[Array, Array, float]:
    """The train step in float64."""
    logits = x @ w + b
    shifted = logits - logits.max(axis=1, keepdims=True)
    p = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    loss = -np.sum(onehot * np.log(p)) / len(x)
    slope = (p - onehot) / len(x)
    return w - lr * x.T @ slope, b - lr * slope.sum(axis=0), float(loss)


@pytest.fixture(scope="module")
def inputs() -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {
        "x": rng.random((128, 784)).astype(np.float32).astype(np.float64),
        "w": rng.normal(0, 0.05, (784, 10)).astype(np.float32).astype(np.float64),
        "b": rng.normal(0, 0.05, 10).astype(np.float32).astype(np.float64),
        "onehot": np.eye(10)[rng.integers(0, 10, 128)],
    }


@pytest.fixture(scope="module")
def linear(child: Child, project: Path, real_plugin: Path, inputs: dict[str, Array]) -> dict[str, Any]:
    """Forward pass and train step of the reference's linear net, in one child; both sessions open at once."""
    x, w, b, onehot = (given(inputs[name]) for name in ("x", "w", "b", "onehot"))
    lr: Json = {"dims": [], "data": [0.5]}
    step = invoke("linear_train_step", [x, w, b, lr, onehot], [7840, 10, 1]) | {"session": 1}
    answers = child(
        create(project / "nets/linear_fwd.mlir"),
        create(project / "nets/linear_train_step.mlir"),
        invoke("m.linear_fwd", [x, w, b], [1280]),
        step,
        step,
        {"op": "release", "session": 0},
        step,
        PJRT_PLUGIN=str(real_plugin),
    )
    assert [a.get("code", 0) for a in answers] == [0] * 7, answers
    return {"forward": answers[2]["outputs"], "steps": [answers[i]["outputs"] for i in (3, 4, 6)]}


def test_forward_agrees_with_numpy(linear: dict[str, Any], inputs: dict[str, Array]) -> None:
    logits = np.array(linear["forward"][0]).reshape(128, 10)

    assert np.abs(logits - (inputs["x"] @ inputs["w"] + inputs["b"])).max() < 1e-5


def test_step_agrees_with_numpy(linear: dict[str, Any], inputs: dict[str, Array]) -> None:
    w, b, loss = linear_step(inputs["x"], inputs["w"], inputs["b"], 0.5, inputs["onehot"])
    got_w, got_b, got_loss = linear["steps"][0]

    assert np.abs(np.array(got_w).reshape(784, 10) - w).max() < 1e-6
    assert np.abs(np.array(got_b) - b).max() < 1e-6
    assert abs(got_loss[0] - loss) < 1e-5
    assert np.abs(w - inputs["w"]).max() > 1e-3  # the step moved, so the bounds above mean something


def test_one_executable_repeats_itself_bit_for_bit(linear: dict[str, Any]) -> None:
    first, second, after_release = linear["steps"]

    assert first == second == after_release


@functools.cache
def computed(entry: str) -> tuple[list[Any], list[Any]]:
    """An artifact's inputs, and what float64 makes of them: the same for each plugin."""
    inputs = oracle.inputs(entry, 11)
    return inputs, oracle.ORACLES[entry](inputs)


@pytest.mark.parametrize(("plugin", "net"), PAIRS)
def test_every_artifact_agrees_with_its_oracle(child: Child, project: Path, plugin: str, net: str) -> None:
    """Both graphs of a net, in one child; and the comparison accepts nothing that is wrong on purpose."""
    entries = [entry for entry in oracle.ORACLES if entry in (f"{net}_fwd", f"{net}_train_step")]
    ops = [op for number, entry in enumerate(entries) for op in asked(project, number, entry)]

    answers = child(*ops, PJRT_PLUGIN=str(site_file(*PLUGINS[plugin])), XLA_FLAGS=UNOPTIMISED)

    assert len(entries) == 2
    for entry, made, answer in zip(entries, answers[::2], answers[1::2], strict=True):
        assert made["made"], made["said"]
        assert answer["code"] == 0, answer["said"]
        hold_to_the_oracle(entry, answer["outputs"])


def asked(project: Path, number: int, entry: str) -> tuple[Json, Json]:
    """To open an artifact, as the child's session of that number, and to run it once."""
    inputs, want = computed(entry)
    op = invoke(f"m.{entry}", [given(array) for array in inputs], [array.size for array in want], raw=True)
    return create(project / f"nets/{entry}.mlir"), op | {"session": number}


def hold_to_the_oracle(entry: str, outputs: list[str]) -> None:
    (inputs, want), updates = computed(entry), oracle.UPDATES[entry]
    tolerance = load_tolerances().of(oracle.FAMILY[entry], "cpu")
    flat = [np.frombuffer(base64.b64decode(raw), np.float32) for raw in outputs]
    got = [one.astype(np.float64).reshape(w.shape) for one, w in zip(flat, want, strict=True)]
    compare(got, want, tolerance=tolerance, inputs=inputs, updates=updates).require()
    require_controls(got, want, tolerance=tolerance, inputs=inputs, updates=updates)


def test_no_artifact_is_left_out() -> None:
    assert {entry.removesuffix("_fwd").removesuffix("_train_step") for entry in oracle.ORACLES} == set(NETS)
    assert len(oracle.ORACLES) == 2 * len(NETS)


@pytest.mark.parametrize("replicas", [2, 3])
def test_all_reduce_sums_over_replicas(child: Child, modules: Path, real_plugin: Path, replicas: int) -> None:
    """The shard mask splits x; w goes to everyone; replica 0 answers."""
    x: Json = {"dims": [2 * replicas], "data": [10.0**i for i in range(2 * replicas)]}
    op = invoke("summed", [x, tensor(first=5.0)], [2, 1], replicas=replicas, mask=[1, 0])

    made, answer = child(
        create(modules / f"summed{replicas}.mlir"),
        op,
        PJRT_PLUGIN=str(real_plugin),
        PJRT_REPLICAS=str(replicas),
        CUDABOOT_CPU_DEVICES=str(replicas),
    )

    assert made["made"], made["said"]
    assert answer["code"] == 0, answer["said"]
    assert answer["outputs"] == [[sum(10.0**i for i in range(k, 2 * replicas, 2)) for k in (0, 1)], [5.0]]


def test_graph_without_all_reduce_stays_on_one_device(child: Child, modules: Path, real_plugin: Path) -> None:
    pair = invoke("pair", [tensor(2, 3), tensor()], [6, 1])

    _, answer = child(create(modules / "pair.mlir"), pair, PJRT_PLUGIN=str(real_plugin), PJRT_REPLICAS="2")

    assert answer["code"] == 0, answer["said"]


def test_describe_a_real_client(child: Child, real_plugin: Path) -> None:
    (answer,) = child({"op": "describe"}, PJRT_PLUGIN=str(real_plugin), CUDABOOT_CPU_DEVICES="3")

    facts = answer["facts"]
    assert (facts["plugin"], facts["found_via"]) == (str(real_plugin), "PJRT_PLUGIN")
    assert (facts["platform"], facts["devices"], facts["addressable_devices"]) == ("cpu", 3, 3)
    assert facts["api"][0] == 0
    assert facts["api"][1] >= 81
    assert len(facts["attributes"]["stablehlo_current_version"]) == 3


def test_plugin_that_refuses_an_option_says_so(child: Child) -> None:
    """One of the real plugins knows its options by name; the other one takes anything."""
    lammps = site_file(*PLUGINS["lammps"])

    (answer,) = child({"op": "describe"}, PJRT_PLUGIN=str(lammps), LEAN_MLIR_MEM_FRACTION="0.5")

    assert answer["code"] == 1
    assert "allocator: 1 create option(s): memory_fraction=0.5" in answer["said"]
    assert "Unexpected option name passed to PJRT_Client_Create: memory_fraction" in answer["said"]


DONATING = """
module @m {
  func.func @d(%a: tensor<1024xf32> {tf.aliasing_output = 0 : i32}) -> tensor<1024xf32> {
    %0 = stablehlo.add %a, %a : tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }
}
"""


def test_host_memory_is_never_written(child: Child, real_plugin: Path, tmp_path: Path) -> None:
    """Even where the module gives its input away, the caller's array is only read: it can be used again."""
    (tmp_path / "d.mlir").write_text(DONATING)
    op = invoke("d", [tensor(1024)], [1024]) | {"keep": True}

    made, first, again = child(create(tmp_path / "d.mlir"), op, op, PJRT_PLUGIN=str(real_plugin))

    assert made["made"], made["said"]
    assert first["inputs"] == again["inputs"] == [tensor(1024)["data"]]
    assert first["outputs"] == again["outputs"] == [[2.0 * v for v in tensor(1024)["data"]]]
