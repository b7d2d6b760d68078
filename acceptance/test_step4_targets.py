"""Step 4: sm_89 (Ada): leave IREE_CHIP unset. BOOTSTRAP.md#️-sm_89-ada-leave-iree_chip-unset--do-not-set-sm_89"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CompileError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes.compiler import Compiler
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import choose_target, cuda_target
from pytest_cudaboot.rules.targets import chip_of, read_ptx, require_loadable
from pytest_cudaboot.run.fixtures import Runner

from .nets import plainest_net

Canary = Callable[..., AbstractContextManager[None]]
CompileGraph = Callable[..., dict[str, bytes]]

MISSING = r"error: missing GPU target in #hal\.executable\.target"
A100 = Gpu(index=0, uuid="GPU-0", name="A100", capability=(8, 0), memory=0, pci="")
# What the document says of compilers of another day: version, chip, whether it compiles.
OF_OLD = [
    ("3.9.0", "sm_86", True),
    ("3.9.0", "sm_89", False),
    ("3.11.0", "sm_89", False),
    ("3.12.0", "sm_89", True),
    ("3.12.0", "sm_90", False),
]


@pytest.fixture
def graph(project: Project) -> Path:
    """The smallest graph: a target that is known or not shows in any."""
    return plainest_net(project).forward.path


def targets(parts: dict[str, bytes]) -> set[str]:
    return {ptx.target for ptx in read_ptx(parts)}


# > The default target is `sm_86`
@pytest.mark.spec("step4.sm86-default")
def test_the_default_target_is_in_the_module(graph: Path, compile_graph: CompileGraph) -> None:
    default = choose_target("cuda", {})

    assert "--iree-cuda-target=sm_86" in default.flags
    assert targets(compile_graph(graph, default)) == {"sm_86"}


# > in 3.13 `sm_80` and `sm_120` compile like the default
@pytest.mark.spec("step4.targets")
@pytest.mark.parametrize("chip", ["sm_80", "sm_120"])
def test_other_targets_compile_into_their_own_ptx(
    graph: Path, compile_graph: CompileGraph, chip: str, measure: Callable[..., None]
) -> None:
    ptx = read_ptx(compile_graph(graph, cuda_target(chip)))

    measure(**{f"{chip}_ptx_version": ".".join(map(str, ptx[0].version))})
    assert {one.target for one in ptx} == {chip}


# > leave it unset
@pytest.mark.spec("step4.sm89-unset")
def test_unset_compiles_for_a_target_that_ada_can_load(graph: Path, compile_graph: CompileGraph) -> None:
    require_loadable(
        compile_graph(graph, choose_target("cuda", {})), replace(A100, name="Ada", capability=(8, 9))
    )


# > Setting `IREE_CHIP=sm_89` fails with `missing GPU target in #hal.executable.target`
@pytest.mark.spec("step4.sm89-unset", role="canary")
def test_sm_89_fails(
    graph: Path, compile_graph: CompileGraph, canary: Canary, iree_compiler: Compiler
) -> None:
    with canary(MISSING, subject(iree_compiler, "sm_89")):
        compile_graph(graph, cuda_target("sm_89"))


@pytest.mark.spec("step4.sm89-unset", role="control")
def test_sm_89_was_really_asked_for(graph: Path, compile_graph: CompileGraph) -> None:
    require_asked_for(graph, compile_graph, "sm_89")


@pytest.mark.spec("step4.sm90-unset")
def test_unset_compiles_for_a_target_that_hopper_can_load(graph: Path, compile_graph: CompileGraph) -> None:
    require_loadable(
        compile_graph(graph, choose_target("cuda", {})), replace(A100, name="H100", capability=(9, 0))
    )


# > while `sm_90` and `sm_100` still fail the same way in 3.13
@pytest.mark.spec("step4.sm90-unset", role="canary")
def test_sm_90_fails(
    graph: Path, compile_graph: CompileGraph, canary: Canary, iree_compiler: Compiler
) -> None:
    with canary(MISSING, subject(iree_compiler, "sm_90")):
        compile_graph(graph, cuda_target("sm_90"))


@pytest.mark.spec("step4.sm90-unset", role="control")
def test_sm_90_was_really_asked_for(graph: Path, compile_graph: CompileGraph) -> None:
    require_asked_for(graph, compile_graph, "sm_90")


@pytest.mark.spec("step4.sm100-unset")
def test_unset_compiles_for_a_target_that_blackwell_can_load(
    graph: Path, compile_graph: CompileGraph
) -> None:
    require_loadable(
        compile_graph(graph, choose_target("cuda", {})), replace(A100, name="B200", capability=(10, 0))
    )


# > while `sm_90` and `sm_100` still fail the same way in 3.13
@pytest.mark.spec("step4.sm100-unset", role="canary")
def test_sm_100_fails(
    graph: Path, compile_graph: CompileGraph, canary: Canary, iree_compiler: Compiler
) -> None:
    with canary(MISSING, subject(iree_compiler, "sm_100")):
        compile_graph(graph, cuda_target("sm_100"))


@pytest.mark.spec("step4.sm100-unset", role="control")
def test_sm_100_was_really_asked_for(graph: Path, compile_graph: CompileGraph) -> None:
    require_asked_for(graph, compile_graph, "sm_100")


def subject(compiler: Compiler, chip: str) -> str:
    """What is tried, with its version, for the verdict."""
    return f"iree-base-compiler {compiler.version} compiles {chip}"


def require_asked_for(graph: Path, compile_graph: CompileGraph, chip: str) -> None:
    """The same words with another chip compile, and where this chip does, its name is in the module.

    The message alone tells nothing: a chip that there is not fails with the same.
    """
    assert targets(compile_graph(graph, cuda_target("sm_80"))) == {"sm_80"}
    made, refusal = compiled_or_refused(graph, compile_graph, chip)
    assert made == {chip} or f"--iree-cuda-target={chip} " in refusal


def compiled_or_refused(graph: Path, compile_graph: CompileGraph, chip: str) -> tuple[set[str], str]:
    """The targets in the module, or the compiler's refusal with the words that it was run with."""
    try:
        return targets(compile_graph(graph, cuda_target(chip))), ""
    except CompileError as error:
        return set(), str(error)


# > That is so with iree-base-compiler 3.9 and 3.11; since 3.12 it compiles
@pytest.mark.spec("step4.older-compilers")
@pytest.mark.parametrize(("version", "chip", "compiles"), OF_OLD)
def test_compilers_of_another_day(
    graph: Path,
    compile_graph: CompileGraph,
    compiler_of: Callable[[str], Path],
    canary: Canary,
    version: str,
    chip: str,
    compiles: bool,  # noqa: FBT001 - a row of the table
) -> None:
    program = compiler_of(version)

    if compiles:
        assert targets(compile_graph(graph, cuda_target(chip), program)) == {chip}
    else:
        with canary(MISSING, f"iree-base-compiler {version} compiles {chip}"):
            compile_graph(graph, cuda_target(chip), program)


# > PTX is never compiled *down*: an A100 needs `IREE_CHIP=sm_80`
@pytest.mark.spec("step4.jit-backward")
def test_the_chip_of_an_a100_is_one_that_it_loads(graph: Path, compile_graph: CompileGraph) -> None:
    require_loadable(compile_graph(graph, cuda_target(chip_of(A100.capability))), A100)


@pytest.mark.spec("step4.jit-backward", role="canary")
def test_a_module_beyond_the_card_is_refused_with_the_chip_to_set(
    graph: Path, compile_graph: CompileGraph, canary: Canary
) -> None:
    module = compile_graph(graph, choose_target("cuda", {}))

    with canary(r"and A100 is sm_80: PTX is compiled forward, never back; compile it with IREE_CHIP=sm_80"):
        require_loadable(module, A100)


# > nvidia-smi --query-gpu=name,compute_cap --format=csv
@pytest.mark.spec("step4.smi-query")
def test_nvidia_smi_prints_what_nvml_says(
    run: Runner, gpus: tuple[Gpu, ...], measure: Callable[..., None]
) -> None:
    done = run(["nvidia-smi", "--query-gpu=name,compute_cap,uuid", "--format=csv,noheader"], device=False)
    told = {row[2]: (row[0], row[1]) for line in done.stdout.splitlines() if (row := line.split(", "))}

    measure(printed=[told.get(gpu.uuid) for gpu in gpus])
    for gpu in gpus:
        assert told[gpu.uuid] == (gpu.name, "{}.{}".format(*gpu.capability))
