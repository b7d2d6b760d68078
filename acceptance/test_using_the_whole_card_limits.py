"""Using the whole card: what fits, who else is there, what the plugin can be asked for. BOOTSTRAP.md#using-the-whole-card"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.build import build_program
from pytest_cudaboot.model import Gpu, to_json
from pytest_cudaboot.probes import nvml
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.reservation import DEFAULT_FRACTION, announcements, refusal
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner, builds
from pytest_cudaboot.run.worker import WORKER

from .clients import FRACTION, RAISED, Client

# What other versions of the plugin have beside the two that the shim passes; a bump may add one or drop one.
OTHER_OPTIONS = (
    "abort_collectives_on_failure",
    "allocator",
    "collective_memory_size",
    "enable_mock_nccl",
    "memory_fraction_policy",
    "mock_gpu_topology",
    "node_id",
    "num_nodes",
    "partition_index",
    "platform_name",
    "should_stage_host_to_device_transfers",
    "use_tfrt_gpu_client",
    "visible_devices",
)


def big_program(elements: int) -> str:
    """A graph that holds a vector of so many float32 for a number of steps that only the caller knows.

    What a loop carries can not be fused away, and with a number of steps that is an input it can not be unrolled.
    """
    vector = f"tensor<{elements}xf32>"
    return f"""
module @m {{
  func.func @big(%steps: tensor<f32>) -> tensor<f32> {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %start = stablehlo.iota dim = 0 : {vector}
    %last:2 = stablehlo.while(%i = %zero, %held = %start) : tensor<f32>, {vector}
      cond {{
        %go = stablehlo.compare LT, %i, %steps : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      }} do {{
        %next = stablehlo.add %i, %one : tensor<f32>
        %wide = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<f32>) -> {vector}
        %more = stablehlo.add %held, %wide : {vector}
        stablehlo.return %next, %more : tensor<f32>, {vector}
      }}
    %first = stablehlo.slice %last#1 [0:1] : ({vector}) -> tensor<1xf32>
    %out = stablehlo.reshape %first : (tensor<1xf32>) -> tensor<f32>
    return %out : tensor<f32>
  }}
}}
"""


class Sized:
    """A program made for one card: it takes what lies between the default reservation and the raised one."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.path = folder / "big.mlir"
        small = 1 << 20
        per_element = self._peak(client, small) / small
        # A quarter of the way up: the raised pool has to hold a little more than the program.
        wanted = client.total * (DEFAULT_FRACTION + 0.25 * (RAISED - DEFAULT_FRACTION))
        self.peak = self._peak(client, int(wanted / per_element))

    def _peak(self, client: Client, elements: int) -> int:
        """Bytes that the program takes, as the plugin counts them before it has run."""
        self.path.write_text(big_program(elements))
        session = client.lowerer.open_session(self.path)
        memory = session.call("memory")
        session.close()
        return max(int(memory["peak"]), int(memory["scratch"] + memory["arguments"] + memory["outputs"]))

    def run(self, client: Client) -> float:
        """Three steps; the first element then is 0 + 0 + 1 + 2."""
        session = client.lowerer.open_session(self.path)
        try:
            (made,) = session.invoke([np.full((), 3, np.float32)])
            return float(made.reshape(()))
        finally:
            session.close()


@pytest.mark.spec("mem.big")
def test_a_program_for_most_of_the_card_runs_with_a_raised_fraction(
    client: Callable[..., Client], tmp_path: Path, evidence: Evidence
) -> None:
    made = client(**{FRACTION: str(RAISED)})
    program = Sized(tmp_path, made)

    evidence.measure(peak_bytes=program.peak, of_the_pool=round(program.peak / made.limit, 3))
    assert DEFAULT_FRACTION * made.total < program.peak < made.limit
    assert program.run(made) == 3.0


@pytest.mark.spec("mem.big", role="canary")
def test_by_default_it_runs_out_of_memory_and_nothing_else_suffers(
    client: Callable[..., Client], tmp_path: Path, evidence: Evidence
) -> None:
    made = client()
    program = Sized(tmp_path, made)

    with pytest.raises(ShimError, match="Out of memory while trying to allocate") as refusal:
        program.run(made)

    evidence.note(out_of_memory=str(refusal.value)[:200])
    assert made.lowerer.alive
    made.work()


@pytest.fixture
def known_options(
    run: Runner, request: pytest.FixtureRequest, cuda_plugin: Path
) -> Callable[..., dict[str, bool]]:
    """A function that asks the CUDA plugin which create options it knows, with every card hidden from it."""
    reference = suite_root() / "fixtures" / "reference"
    environ = request.config.stash[WORKER].environ
    program = build_program(reference, "ffi/plugin_options.c", builds(), ["-ldl"], env=environ)

    def ask(*names: str) -> dict[str, bool]:
        lines = run([program, cuda_plugin, *names], device=False).stdout.splitlines()
        answers = {answer["option"]: str(answer["words"]) for answer in map(json.loads, lines)}
        return {name: "Unexpected option name" not in words for name, words in answers.items()}

    return ask


@pytest.mark.spec("mem.new-policy")
def test_the_plugins_options_are_known_by_name(
    known_options: Callable[..., dict[str, bool]], evidence: Evidence
) -> None:
    known = known_options("memory_fraction", "preallocate", *OTHER_OPTIONS, "no_such_option")

    evidence.measure(options={name: known[name] for name in sorted(known)})
    assert (known["memory_fraction"], known["preallocate"], known["no_such_option"]) == (True, True, False)


@pytest.fixture
def beside(
    request: pytest.FixtureRequest, pjrt_shim: Path, tmp_path: Path, evidence: Evidence
) -> Callable[[], str]:
    """A function that makes a second client beside the first one, and gives what its process wrote."""
    worker = request.config.stash[WORKER]

    def make() -> str:
        config, log = worker.config("xla", pjrt_shim, {}), tmp_path / "second.log"
        env = {**worker.devices.environment, **config.environment}
        with DeviceProcess(env=env, log_path=log, pass_fds=worker.devices.locks) as process:
            process.call("open", budget=evidence.left, config=to_json(config))
            return log.read_text(errors="replace")

    return make


@pytest.mark.spec("mem.tenants")
def test_a_card_without_another_client_may_be_asked_for(
    client: Callable[..., Client], evidence: Evidence
) -> None:
    made = client()

    evidence.measure(used_before_bytes=made.before)
    assert made.before is not None
    assert refusal(total=made.total, used=made.before, fraction=DEFAULT_FRACTION) is None


@pytest.mark.spec("mem.tenants", role="canary")
def test_a_second_client_would_be_refused_though_the_plugin_says_the_same_line(
    gpu: Gpu, client: Callable[..., Client], beside: Callable[[], str], evidence: Evidence
) -> None:
    first = client()
    first.work()
    used = nvml.memory_used(gpu.uuid)

    lines = announcements(beside())

    evidence.measure(used_bytes=used, second_says_bytes=lines[0].bytes)
    assert used is not None
    assert lines[0].bytes == first.limit
    assert refusal(total=first.total, used=used, fraction=DEFAULT_FRACTION) is not None
