"""IREE's real runtime and compiler behind the seam, on the CPU: what runs, what is refused, and in whose words."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.errors import CompileError, ShimError, SignatureError
from pytest_cudaboot.lowerers.base import LowererConfig, Session, make_lowerer
from pytest_cudaboot.lowerers.iree import IreeLowerer
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.probes.compiler import Compiler, ask_version, module_parts
from pytest_cudaboot.probes.store import ModuleStore
from pytest_cudaboot.probes.toolchain import find_iree_compile, package_folders
from pytest_cudaboot.rules.iree_target import Target, choose_target, cuda_target
from pytest_cudaboot.rules.targets import read_ptx

GRAPH = """\
module @m {
  func.func @affine(%x: tensor<2x3xf32>, %s: tensor<f32>) -> (tensor<2x3xf32>, tensor<f32>) {
    %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %y = stablehlo.multiply %x, %b : tensor<2x3xf32>
    return %y, %s : tensor<2x3xf32>, tensor<f32>
  }
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
S = np.full((), 2, np.float32)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    found = find_iree_compile({"PATH": ""}, Path(), package_folders())
    said, _ = ask_version(found.path, env=os.environ)
    return Compiler(path=found.path, found_via=found.found_via, package=found.version, said=said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iree")


@pytest.fixture(scope="module")
def graph(folder: Path) -> Path:
    path = folder / "affine.mlir"
    path.write_text(GRAPH)
    return path


def modules(compiler: Compiler, folder: Path, target: Target) -> Modules:
    store = ModuleStore(folder / "modules")
    return Modules(store, target, name_of(compiler), program=compiler.path, env=dict(os.environ))


@pytest.fixture(scope="module")
def module(compiler: Compiler, folder: Path, graph: Path) -> Path:
    return modules(compiler, folder, choose_target("cpu", {})).of(graph).path


@pytest.fixture(scope="module")
def lowerer() -> IreeLowerer:
    made = make_lowerer(LowererConfig(name="iree", platform="cpu"))
    assert isinstance(made, IreeLowerer)
    return made


@pytest.fixture
def session(lowerer: IreeLowerer, module: Path, graph: Path) -> Session:
    return lowerer.open_session(module, graph)


def test_a_graph_runs(session: Session) -> None:
    made = session.invoke("affine", [X, S])

    assert [array.tolist() for array in made] == [(2 * X).tolist(), 2.0]


def test_outputs_are_the_callers(session: Session) -> None:
    first = session.invoke("affine", [X, S])[0]
    session.invoke("affine", [10 * X, S])

    assert first.tolist() == (2 * X).tolist()


def test_the_inputs_layout_in_memory_does_not_matter(session: Session) -> None:
    fortran = np.asfortranarray(X)

    assert session.invoke("m.affine", [fortran, S])[0].tolist() == (2 * X).tolist()


def test_the_facts_say_what_really_runs(lowerer: IreeLowerer) -> None:
    facts = lowerer.facts()

    assert facts["describe"]["driver"] == "local-task"
    assert facts["describe"]["platform"] == "cpu"
    assert len(facts["describe"]["commit"]) == 40
    assert any(name.startswith("_runtime.") for name in facts["mapped"])


def test_the_module_declares_the_texts_signature(session: Session) -> None:
    assert str(session.signature.inputs[0]) == "tensor<2x3xf32>"
    assert [tensor.shape for tensor in session.signature.outputs] == [(2, 3), ()]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("@affine", "@other", r"the module is of @affine, and the text of @other"),
        ("2x3", "3x2", r"@affine: input 0 is tensor<3x2xf32> in the text, tensor<2x3xf32> in the module"),
        (", tensor<f32>) {", ") {", r"@affine: 1 outputs in the text, 2 in the module"),
    ],
)
def test_a_module_of_another_text_is_refused(
    lowerer: IreeLowerer, module: Path, tmp_path: Path, old: str, new: str, words: str
) -> None:
    other = tmp_path / "affine.mlir"
    other.write_text(GRAPH.replace(old, new))

    with pytest.raises(SignatureError, match=words):
        lowerer.open_session(module, other)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([X], r"expected 2 arguments but passed 1"),
        ([X, S, S], r"expected 2 arguments but passed 3"),
        ([X.reshape(3, 2), S], r"input0 shape dimension 0 mismatch; expected 2 but have 3"),
        ([X.reshape(6), S], r"input0 shape rank mismatch; expected 2 but have 1"),
        ([X, S.reshape(1)], r"input1 shape rank mismatch; expected 0 .* but have 1"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_iree(
    session: Session, arrays: list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]], words: str
) -> None:
    with pytest.raises(ShimError, match=rf"\[iree\] @affine: .*{words}") as caught:
        session.invoke("affine", arrays)

    assert caught.value.code == 1


def test_float32_is_all_that_the_abi_carries(session: Session) -> None:
    with pytest.raises(SignatureError, match=r"input 0 is int32 \(2, 3\); the ABI carries float32 only"):
        session.invoke("affine", [X.astype(np.int32), S])


def test_float_bits_are_not_taken_for_integers(
    lowerer: IreeLowerer, compiler: Compiler, folder: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.mlir"
    whole.write_text(
        "module @m {\n  func.func @whole(%a: tensor<4xi32>) -> tensor<4xi32> {\n"
        "    return %a : tensor<4xi32>\n  }\n}\n"
    )
    opened = lowerer.open_session(modules(compiler, folder, choose_target("cpu", {})).of(whole).path, whole)

    with pytest.raises(ShimError, match=r"input 0 of @whole: the module wants tensor<4xi32>") as caught:
        opened.invoke("whole", [np.zeros(4, np.float32)])
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("outputs", "code", "words"),
    [
        ([(2, 3)], 1, r"returns 2 outputs, the caller supplied 1 destinations"),
        ([(2, 3), (), ()], 1, r"returns 2 outputs, the caller supplied 3 destinations"),
        ([(2, 2), ()], 4, r"output 0 size mismatch: graph 24 bytes \(tensor<2x3xf32>\), caller 16"),
    ],
)
def test_room_that_does_not_fit_is_refused(
    session: Session, outputs: list[tuple[int, ...]], code: int, words: str
) -> None:
    with pytest.raises(ShimError, match=words) as caught:
        session.invoke("affine", [X, S], outputs)

    assert caught.value.code == code


def test_another_function_is_refused(session: Session) -> None:
    with pytest.raises(ShimError, match=r"the session holds @affine, the caller asks for m.train"):
        session.invoke("m.train", [X, S])


def test_a_closed_session_refuses(session: Session) -> None:
    session.close()
    session.close()

    with pytest.raises(ShimError, match="the session is closed"):
        session.invoke("affine", [X, S])


@pytest.mark.parametrize("keep", [0, 100, 2000])
def test_a_truncated_module_is_refused(lowerer: IreeLowerer, module: Path, tmp_path: Path, keep: int) -> None:
    short = tmp_path / "short.vmfb"
    short.write_bytes(module.read_bytes()[:keep])

    with pytest.raises(ShimError, match=r"\[iree\] no session of '.*short.vmfb': .*INVALID_ARGUMENT"):
        lowerer.open_session(short)


def test_a_text_is_no_module(lowerer: IreeLowerer, graph: Path) -> None:
    with pytest.raises(ShimError, match=r"no session of '.*affine.mlir': .*INVALID_ARGUMENT"):
        lowerer.open_session(graph)


def test_a_missing_module_is_refused(lowerer: IreeLowerer) -> None:
    with pytest.raises(ShimError, match=r"'/gone.vmfb' can not be read: No such file"):
        lowerer.open_session(Path("/gone.vmfb"))


def test_a_module_for_another_device_is_refused(
    lowerer: IreeLowerer, compiler: Compiler, folder: Path, graph: Path
) -> None:
    stored = modules(compiler, folder, cuda_target("sm_86")).of(graph)

    assert {ptx.target for ptx in read_ptx(module_parts(stored.path))} == {"sm_86"}
    with pytest.raises(ShimError, match=r"no session of .*HAL device .* not found or unavailable"):
        lowerer.open_session(stored.path, graph)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ShimError, match=r"\[iree\] no device 'nonsense'"):
        make_lowerer(LowererConfig(name="iree", platform="cpu", environment={"IREE_DEVICE": "nonsense"}))


def test_the_compilers_own_refusal_is_told(compiler: Compiler, folder: Path, graph: Path) -> None:
    with pytest.raises(
        CompileError, match=r"Step 2: affine.mlir was not compiled: .*error: missing GPU target"
    ):
        modules(compiler, folder, cuda_target("sm_999")).of(graph)
