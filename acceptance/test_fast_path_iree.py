"""Fast path: what the document says of the second lowerer. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import SignatureError
from pytest_cudaboot.lowerers.base import Array, LowererConfig
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.compiler import Compiler
from pytest_cudaboot.probes.store import ModuleStore
from pytest_cudaboot.project import Project, sha256, suite_root
from pytest_cudaboot.rules.iree_target import choose_target
from pytest_cudaboot.rules.numerics import compare
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.rules.signature import check_artifact
from pytest_cudaboot.rules.targets import read_ptx
from pytest_cudaboot.rules.tolerances import load_tolerances
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.nets import Graph, Net

from .nets import plainest_net

SEED = 42
VENDOR = ("libcudnn", "libcublas", "libcublasLt", "libcufft", "libcusolver", "libcusparse")
NAMED = (b"cudnn", b"cublas", b"cufft", b"cusolver", b"cusparse")


@pytest.fixture
def plainest(project: Project) -> Net:
    return plainest_net(project)


# > The graph is the same for both: they are given what one file of `nets/` says
@pytest.mark.spec("fast.same-graph")
def test_both_are_given_one_file(
    plainest: Net,
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
    modules: Modules,
    evidence: Evidence,
) -> None:
    graph = plainest.step
    text = to_json(check_artifact(graph.path))
    shapes = {}
    for name in ("xla", "iree"):
        opened = load(open_lowerer(name), graph.path)
        assert opened.signature == text
        shapes[name] = [array.shape for array in opened.invoke(graph.inputs(SEED))]

    evidence.note(sha256=sha256(graph.path))
    assert modules.key(graph.path).mlir == sha256(graph.path)
    assert shapes["xla"] == shapes["iree"] == [tuple(output["shape"]) for output in text["outputs"]]


@pytest.mark.spec("fast.same-graph")
def test_a_module_of_another_file_is_refused(
    plainest: Net, open_lowerer: Callable[[str], LowererHandle], modules: Modules
) -> None:
    stored = modules.of(plainest.step.path)
    # A checkout may have but one graph.
    graphs = suite_root() / "fixtures" / "broken" / "graphs"
    other = plainest.forward.path if plainest.forward.path != plainest.step.path else graphs / "integers.mlir"

    with pytest.raises(SignatureError, match=rf"the module is of @{plainest.step.entry}, and the text of @"):
        open_lowerer("iree").open_session(stored.path, source=other)


# > reaches targets for which no vendor has written kernels
@pytest.mark.spec("fast.portable")
def test_a_cpu_alone_computes_the_same_net(
    plainest: Net,
    iree_compiler: Compiler,
    outer: Mapping[str, str],
    tmp_path: Path,
    evidence: Evidence,
    measure: Callable[..., None],
) -> None:
    graph, env = plainest.step, pin_environment(outer, ())
    modules = Modules(
        ModuleStore(tmp_path / "modules"),
        choose_target("cpu", {}),
        name_of(iree_compiler),
        program=iree_compiler.path,
        env=env,
    )
    inputs, module = graph.inputs(SEED), modules.of(graph.path).path

    with DeviceProcess(env=env, log_path=tmp_path / "device.log") as process:
        made = made_on_the_cpu(process, module, graph, inputs, evidence)

    compared = compare(
        made,
        graph.oracle(inputs),
        tolerance=load_tolerances().of(graph.family, "cpu"),
        inputs=inputs,
        updates=graph.updates,
    )
    measure(median_error=compared.median, p90_error=compared.p90, target=str(modules.target))
    compared.require()


def made_on_the_cpu(
    process: DeviceProcess, module: Path, graph: Graph, inputs: Sequence[Array], evidence: Evidence
) -> list[Array]:
    """A graph's outputs, from IREE in a process of its own."""
    config = to_json(LowererConfig(name="iree", platform="cpu"))
    process.call("open", budget=evidence.left, config=config)
    opened = process.call("session_open", budget=evidence.left, path=str(module), source=str(graph.path))
    made: list[Array] = process.call(
        "invoke", budget=evidence.left, session=opened["session"], fn=graph.entry, arrays=inputs
    )
    return made


# > IREE generates every kernel itself
@pytest.mark.spec("fast.iree-own-kernels")
def test_each_dispatch_brings_its_own_ptx(
    plainest: Net, compile_graph: Callable[..., dict[str, bytes]], measure: Callable[..., None]
) -> None:
    parts = compile_graph(plainest.step.path, choose_target("cuda", {}))
    dispatches = {name for name in parts if name != "module.fb"}
    ptx = read_ptx(parts)

    measure(dispatches=len(dispatches), kernels=sum(len(one.entries) for one in ptx))
    assert {one.part for one in ptx} == dispatches
    assert all(one.entries for one in ptx)
    assert [name for name in NAMED if any(name in data for data in parts.values())] == []


@pytest.mark.spec("fast.iree-no-libraries")
def test_no_math_library_of_the_vendors_is_mapped(
    session: Callable[[Path], SessionHandle],
    lowerer: LowererHandle,
    plainest: Net,
    measure: Callable[..., None],
) -> None:
    session(plainest.step.path).invoke(plainest.step.inputs(SEED))
    mapped = lowerer.mapped()

    measure(vendor=[name for name in mapped if name.startswith(("libcu", "libnv"))])
    assert any(name.startswith("libcuda.so") for name in mapped)
    assert [name for name in mapped if name.startswith(VENDOR)] == []
