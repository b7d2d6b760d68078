"""Step 3: CUDA runtime FFI, what the shim refuses. BOOTSTRAP.md#step-3-cuda-runtime-ffi-ffilibiree_ffiso"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.compiler import Compiler
from pytest_cudaboot.probes.store import ModuleStore
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import Target, choose_target, cuda_target
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.iree import compiled, compiler_environment
from pytest_cudaboot.run.nets import Net
from pytest_cudaboot.run.worker import WORKER

from .nets import plainest_net

SEED = 31
GUARD, DOWNLOAD = 1, 4


@pytest.fixture(scope="module")
def plainest(project: Project) -> Net:
    return plainest_net(project)


@pytest.fixture(scope="module")
def modules_for(iree_compiler: Compiler, request: pytest.FixtureRequest) -> Callable[[Target], Modules]:
    """A function that gives modules for any target, whatever this run's cards."""
    worker = request.config.stash[WORKER]
    store, env = ModuleStore(Path(worker.plan.iree.modules)), compiler_environment(worker)

    def make(target: Target) -> Modules:
        return Modules(store, target, name_of(iree_compiler), program=iree_compiler.path, env=env)

    return make


@pytest.fixture(scope="module")
def host_modules(modules_for: Callable[[Target], Modules]) -> Modules:
    """Modules for the CPU: guards are the shim's, and the same everywhere."""
    return modules_for(choose_target("cpu", {}))


class Shim:
    """The IREE shim on the CPU, in a process of its own."""

    def __init__(self, process: DeviceProcess, evidence: Evidence) -> None:
        self._process, self._evidence = process, evidence

    def open(self, module: Path, source: Path | None = None) -> int:
        self._evidence.act()
        opened = self._process.call(
            "session_open",
            budget=self._evidence.left,
            path=str(module),
            source=str(source) if source else None,
        )
        return int(opened["session"])

    def invoke(self, session: int, fn: str, arrays: list[Any], **rest: Any) -> list[Any]:
        made: list[Any] = self._process.call(
            "invoke", budget=self._evidence.left, session=session, fn=fn, arrays=arrays, **rest
        )
        return made


@pytest.fixture
def shim(iree_shim: Path, tmp_path: Path, evidence: Evidence, outer: dict[str, str]) -> Any:
    env = {**pin_environment(outer, ()), "IREE_DEVICE": "local-task"}
    config = LowererConfig(
        name="iree", platform="cpu", shim=str(iree_shim), environment={"IREE_DEVICE": "local-task"}
    )
    with DeviceProcess(env=env, log_path=tmp_path / "device.log") as process:
        process.call("open", budget=evidence.left, config=to_json(config))
        evidence.ran_on("cpu", [])
        yield Shim(process, evidence)


@pytest.mark.spec("step3.guards")
def test_two_sessions_compute_what_the_oracle_does(
    shim: Shim, host_modules: Modules, plainest: Net, evidence: Evidence
) -> None:
    graph, inputs = plainest.forward, plainest.forward.inputs(SEED)
    module = compiled(host_modules, graph.path, (), evidence).path

    first, second = (shim.open(module, graph.path) for _ in range(2))
    made = [shim.invoke(session, graph.entry, inputs)[0] for session in (first, second)]

    (want,) = graph.oracle(inputs)
    assert np.array_equal(made[0], made[1])
    assert np.allclose(made[0], want, rtol=1e-4, atol=1e-4)


REFUSED = {
    "entry": ("m.other", None, r"the session holds @\w+ \(m\.\w+\), the caller asks for m\.other", GUARD),
    "module": (
        "module.ENTRY",
        None,
        r"the session holds @\w+ \(m\.\w+\), the caller asks for module\.",
        GUARD,
    ),
    "count": ("ENTRY", lambda arrays: arrays[:-1], r"takes \d+ inputs, the caller gives \d+", GUARD),
    "transposed": (
        "m.ENTRY",
        lambda arrays: [arrays[0], arrays[1].T.copy(), *arrays[2:]],
        r"input 1 of @\w+: the module wants tensor<784x\d+xf32>, the caller gives tensor<\d+x784xf32>",
        GUARD,
    ),
    "rank": (
        "m.ENTRY",
        lambda arrays: [arrays[0].reshape(-1), *arrays[1:]],
        r"input 0 of @\w+: the module wants tensor<128x784xf32>, the caller gives tensor<100352xf32>",
        GUARD,
    ),
}


@pytest.mark.spec("step3.guards", role="canary")
@pytest.mark.parametrize("guard", REFUSED)
def test_what_does_not_fit_is_refused_and_the_session_lives_on(
    shim: Shim, host_modules: Modules, plainest: Net, evidence: Evidence, guard: str
) -> None:
    graph, inputs = plainest.forward, plainest.forward.inputs(SEED)
    function, change, words, code = REFUSED[guard]
    session = shim.open(compiled(host_modules, graph.path, (), evidence).path, graph.path)

    with pytest.raises(ShimError, match=words) as refusal:
        shim.invoke(session, function.replace("ENTRY", graph.entry), change(inputs) if change else inputs)

    assert refusal.value.code == code
    assert len(shim.invoke(session, graph.entry, inputs)) == 1


@pytest.mark.spec("step3.guards", role="canary")
def test_outputs_that_do_not_fit_are_refused(
    shim: Shim, host_modules: Modules, plainest: Net, evidence: Evidence
) -> None:
    graph, inputs = plainest.forward, plainest.forward.inputs(SEED)
    session = shim.open(compiled(host_modules, graph.path, (), evidence).path, graph.path)

    with pytest.raises(ShimError, match="returns 1 outputs, the caller supplied 2") as count:
        shim.invoke(session, graph.entry, inputs, outputs=[[128, 10], [1]])
    with pytest.raises(ShimError, match="output 0 size mismatch") as size:
        shim.invoke(session, graph.entry, inputs, outputs=[[128, 9]])

    assert (count.value.code, size.value.code) == (GUARD, DOWNLOAD)


@pytest.mark.spec("step3.guards", role="canary")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda data: data[: len(data) // 2], "truncated: its", id="half"),
        pytest.param(lambda data: data[:-1], "truncated: its", id="all but a byte"),
        pytest.param(lambda data: data[:700] + data[-700:], "does not load", id="its middle is gone"),
        pytest.param(
            lambda _: b"\x7fELF" + bytes(4000), "this is an ELF file; the IREE shim takes", id="ELF"
        ),
        pytest.param(lambda _: b"", "the file is empty", id="empty"),
        pytest.param(
            lambda _: b"module @m {\n}\n",
            "this is text; the IREE shim takes a compiled .vmfb",
            id="StableHLO",
        ),
    ],
)
def test_what_is_no_module_is_refused(
    shim: Shim,
    host_modules: Modules,
    plainest: Net,
    evidence: Evidence,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    words: str,
) -> None:
    whole = compiled(host_modules, plainest.forward.path, (), evidence).path
    broken = tmp_path / "broken.vmfb"
    broken.write_bytes(change(whole.read_bytes()))

    with pytest.raises(ShimError):
        shim.open(broken, plainest.forward.path)

    assert words in (tmp_path / "device.log").read_text(errors="replace")


@pytest.mark.spec("step3.guards", role="canary")
def test_a_module_for_a_card_is_refused_on_the_cpu(
    shim: Shim,
    modules_for: Callable[[Target], Modules],
    plainest: Net,
    evidence: Evidence,
    tmp_path: Path,
) -> None:
    graph = plainest.forward
    module = compiled(modules_for(cuda_target("sm_86")), graph.path, (), evidence).path

    with pytest.raises(ShimError):
        shim.open(module, graph.path)

    said = (tmp_path / "device.log").read_text(errors="replace")
    assert re.search(r"does not load: .*INCOMPATIBLE.*not found or unavailable.*\"cuda\"", said)
