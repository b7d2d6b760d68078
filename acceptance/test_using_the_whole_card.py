"""Using the whole card. BOOTSTRAP.md#using-the-whole-card"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.build import build_program
from pytest_cudaboot.model import Gpu, to_json
from pytest_cudaboot.probes import nvml
from pytest_cudaboot.project import Project, suite_root
from pytest_cudaboot.rules.reservation import DEFAULT_FRACTION, Announcement, announcements, refusal
from pytest_cudaboot.run.devices import LowererHandle
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner, builds
from pytest_cudaboot.run.worker import WORKER

from .conftest import plainest_net

FRACTION = "LEAN_MLIR_MEM_FRACTION"
PREALLOCATE = "LEAN_MLIR_PREALLOCATE"
OF_JAX = "XLA_PYTHON_CLIENT_MEM_FRACTION"
RAISED = 0.97
CLOSE = 1e-3  # of the driver's total: the plugin rounds to its own granules
CONTEXT = 4 << 30  # bytes: more than a process takes beside its reservation, less than any reservation
OPTIONS_LINE = re.compile(r"\[pjrt_ffi\] allocator: (\d+) create option")
FIGURE = re.compile(r"([\d.]+)GiB \((\d+) bytes\)[^#\n]*#\s*(at ([\d.]+)|unset)")
SEED = 31
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


@dataclass(frozen=True, slots=True)
class Client:
    """A PJRT client in a fresh device process, and what can be known of what it takes.

    :param before: bytes in use on the card before it was made, or null where NVML does not say.
    """

    lowerer: LowererHandle
    log: Path
    project: Project
    gpu: Gpu | None
    before: int | None

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def limit(self) -> int:
        """What the allocator may take, by the client's own word."""
        return int(self.lowerer.facts["describe"]["bytes_limit"])

    @property
    def total(self) -> int:
        """The driver's total, which is not NVML's."""
        (device,) = self.lowerer.call("driver")["devices"]
        return int(device["memory"])

    @property
    def options(self) -> dict[str, object]:
        """The create options that the shim passed."""
        return dict(self.lowerer.facts["describe"]["create_options"])

    def announced(self) -> Announcement:
        """The plugin's line on the allocator of its first card."""
        return next(line for line in announcements(self.text) if line.allocator == "BFCAllocator")

    def work(self) -> None:
        """Run the plainest graph once: a reservation is taken with the first buffer."""
        graph = plainest_net(self.project).forward
        session = self.lowerer.open_session(graph.path)
        session.invoke(graph.inputs(SEED))
        session.close()

    def grown(self) -> int | None:
        """Bytes by which the use of the card has grown since before the client was made."""
        now = nvml.memory_used(self.gpu.uuid) if self.gpu else None
        return None if now is None or self.before is None else now - self.before


@pytest.fixture
def client(
    open_with: Callable[..., LowererHandle],
    request: pytest.FixtureRequest,
    project: Project,
    evidence: Evidence,
) -> Callable[..., Client]:
    """A function that makes a client with settings in its environment, in a process of its own."""
    worker = request.config.stash[WORKER]

    def make(**settings: str) -> Client:
        worker.devices.retire()
        before = nvml.memory_used(worker.gpu.uuid) if worker.gpu else None
        lowerer = open_with(**settings)
        return Client(lowerer, Path(evidence.notes["device_log"]), project, worker.gpu, before)

    return make


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


# > By default the plugin reserves 0.75 of the card's memory (as the *driver* counts it)
@pytest.mark.spec("mem.default")
def test_three_quarters_of_the_drivers_total(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client()
    made.work()

    grown = made.grown()
    evidence.measure(reserved_bytes=made.limit, driver_bytes=made.total, grown_bytes=grown)
    assert made.limit == pytest.approx(DEFAULT_FRACTION * made.total, rel=CLOSE)
    assert made.announced().bytes == made.limit
    assert grown is None or made.limit <= grown < made.limit + CONTEXT


# > because the shim then passes no create option: `[pjrt_ffi] allocator: 0 create option(s)`
@pytest.mark.spec("mem.no-options")
def test_unset_means_absent(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client()

    said = OPTIONS_LINE.search(made.text)
    evidence.measure(create_options=len(made.options))
    assert said is not None
    assert (said[1], made.options) == ("0", {})


@pytest.mark.spec("mem.unset")
def test_two_clients_without_settings_are_the_same(client: Callable[..., Client], evidence: Evidence) -> None:
    facts = [client().lowerer.facts["describe"] for _ in range(2)]

    evidence.measure(bytes_limit=facts[0]["bytes_limit"])
    assert facts[0]["bytes_limit"] == facts[1]["bytes_limit"]
    assert facts[0]["create_options"] == facts[1]["create_options"] == {}


# > The shim has variables of its own
@pytest.mark.spec("mem.shim-option")
def test_a_fraction_is_passed_on_and_kept(client: Callable[..., Client], evidence: Evidence) -> None:
    default, half = client().limit, client(**{FRACTION: "0.5"}).limit
    made = client(**{FRACTION: str(RAISED)})
    made.work()

    ratio, grown = made.limit / default, made.grown()
    evidence.measure(default_bytes=default, raised_bytes=made.limit, ratio=round(ratio, 4), grown_bytes=grown)
    assert made.options == {"memory_fraction": pytest.approx(RAISED)}
    assert ratio == pytest.approx(RAISED / DEFAULT_FRACTION, rel=CLOSE)
    assert half / default == pytest.approx(0.5 / DEFAULT_FRACTION, rel=CLOSE)
    assert made.announced().bytes == made.limit
    assert grown is None or made.limit <= grown < made.limit + CONTEXT


# > `XLA_PYTHON_CLIENT_MEM_FRACTION` has no effect here, because it is JAX's Python layer that reads it
@pytest.mark.spec("mem.xla-env")
def test_the_shims_own_variable_is_what_counts(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client(**{FRACTION: "0.5", OF_JAX: "0.3"})

    evidence.measure(reserved_bytes=made.limit)
    assert made.limit == pytest.approx(0.5 * made.total, rel=CLOSE)


@pytest.mark.spec("mem.xla-env", role="canary")
@pytest.mark.parametrize("variable", [OF_JAX, "XLA_CLIENT_MEM_FRACTION"])
def test_jaxs_variable_changes_nothing(
    client: Callable[..., Client], variable: str, evidence: Evidence
) -> None:
    unset, told = client().limit, client(**{variable: "0.3"}).limit

    evidence.measure(**{f"with_{variable}_bytes": told})
    assert told == unset


# > 0 < f <= 1, anything else is refused by name and value
@pytest.mark.spec("mem.range")
def test_a_fraction_in_range_reaches_the_plugin(client: Callable[..., Client], evidence: Evidence) -> None:
    """A plugin that knows its options by name may refuse this one; the shim has then passed it on."""
    evidence.act()
    try:
        said = client(**{FRACTION: "0.5"}).text
    except ShimError as refused:
        said = str(refused)

    assert "allocator: 1 create option(s): memory_fraction=0.5" in said


@pytest.mark.spec("mem.range", role="canary")
@pytest.mark.parametrize("value", ["0", "1.5", "7.0", "half", "0.5x", "nan", ""])
def test_a_fraction_out_of_range_is_refused(
    client: Callable[..., Client], value: str, evidence: Evidence
) -> None:
    evidence.act()
    with pytest.raises(
        ShimError, match=re.escape(f"{FRACTION}='{value}' is not a fraction f with 0 < f <= 1")
    ):
        client(**{FRACTION: value})


@pytest.mark.spec("mem.range", role="canary")
@pytest.mark.parametrize("value", ["2", "no", ""])
def test_preallocate_is_0_or_1(client: Callable[..., Client], value: str, evidence: Evidence) -> None:
    evidence.act()
    with pytest.raises(ShimError, match=re.escape(f"{PREALLOCATE}='{value}' is neither 0 nor 1")):
        client(**{PREALLOCATE: value})


# > grow with use; 0 or 1
@pytest.mark.spec("mem.preallocate")
def test_without_preallocation_it_grows_with_use(client: Callable[..., Client], evidence: Evidence) -> None:
    default = client().limit
    made = client(**{PREALLOCATE: "0"})
    made.work()

    grown = made.grown()
    evidence.measure(limit_bytes=made.limit, grown_bytes=grown)
    assert (made.limit, made.announced().up_front) == (default, False)
    assert grown is None or grown < CONTEXT


@pytest.mark.spec("mem.both")
def test_a_fraction_and_no_preallocation_go_together(
    client: Callable[..., Client], evidence: Evidence
) -> None:
    made = client(**{FRACTION: str(RAISED), PREALLOCATE: "0"})
    made.work()

    grown = made.grown()
    evidence.measure(limit_bytes=made.limit, grown_bytes=grown)
    assert made.limit == pytest.approx(RAISED * made.total, rel=CLOSE)
    assert not made.announced().up_front
    assert grown is None or grown < CONTEXT


# > The plugin's own line says what it reserved.
@pytest.mark.spec("mem.line")
def test_the_plugin_says_what_it_takes(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client()

    evidence.measure(announced_bytes=made.announced().bytes)
    assert made.announced() == Announcement(
        bytes=made.limit, device=0, allocator="BFCAllocator", up_front=True
    )


@pytest.mark.spec("mem.line", role="canary")
def test_a_log_level_hides_the_line(client: Callable[..., Client], evidence: Evidence) -> None:
    made = client(TF_CPP_MIN_LOG_LEVEL="2")

    evidence.measure(hidden=not announcements(made.text))
    assert announcements(made.text) == []
    assert made.limit > 0


@pytest.mark.spec("mem.figures")
def test_the_documents_figures_imply_one_total(document_text: str, evidence: Evidence) -> None:
    figures = FIGURE.findall(document_text)
    totals = [int(count) / float(fraction or DEFAULT_FRACTION) for _, count, _, fraction in figures]

    evidence.measure(figures=len(figures), implied_totals_bytes=[round(total) for total in totals])
    if len(figures) < 2:
        pytest.skip("the document has no two figures of memory that could fit each other")
    assert [gib for gib, count, _, _ in figures if f"{int(count) / 2**30:.2f}" != gib] == []
    assert max(totals) == pytest.approx(min(totals), rel=CLOSE)


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
