"""Step 4: Run recipe, the variables of the IREE path. BOOTSTRAP.md#step-4-run-recipe-cuda"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import CompileError
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.model import Json, to_json
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import Target, choose_device, choose_target
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.nets import Graph

from .nets import plainest_net

Canary = Callable[..., AbstractContextManager[None]]
CompileGraph = Callable[..., dict[str, bytes]]
SEED = 41
BASH = "/bin/bash"


@pytest.fixture
def graph(project: Project) -> Graph:
    return plainest_net(project).forward


# > with `.venv/bin` on `PATH` it is
@pytest.mark.spec("step4.path")
def test_a_shell_finds_the_compiler_on_path(
    run: Runner, iree_compile: Path, outer: Mapping[str, str]
) -> None:
    path = f"{iree_compile.parent}{os.pathsep}{outer.get('PATH', os.defpath)}"

    done = run(
        [BASH, "-c", "command -v iree-compile && iree-compile --version"], env={"PATH": path}, device=False
    )

    assert done.stdout.splitlines()[0] == str(iree_compile)


# > without, the shell answers `iree-compile: command not found`
@pytest.mark.spec("step4.path", role="canary")
def test_a_shell_without_it_says_so(run: Runner, tmp_path: Path, canary: Canary) -> None:
    with canary(r"iree-compile: command not found"):
        run([BASH, "-c", "iree-compile --version"], env={"PATH": str(tmp_path)}, device=False)


# > To export `IREE_BACKEND=cuda` changes nothing
@pytest.mark.spec("step4.backend-unset")
def test_the_export_changes_no_word(evidence: Evidence) -> None:
    unset, exported = choose_target("cuda", {}), choose_target("cuda", {"IREE_BACKEND": "cuda"})

    evidence.measure(flags=" ".join(unset.flags))
    assert unset == exported
    assert unset.flags == exported.flags


# > `IREE_BACKEND=` and `IREE_CHIP=` are refused by name
@pytest.mark.spec("step4.empty-env")
def test_unset_is_not_empty(graph: Graph, compile_graph: CompileGraph) -> None:
    assert compile_graph(graph.path, choose_target("cuda", {}))


@pytest.mark.spec("step4.empty-env", role="canary")
@pytest.mark.parametrize("variable", ["IREE_BACKEND", "IREE_CHIP"])
def test_an_empty_value_is_refused_by_name(variable: str, canary: Canary, evidence: Evidence) -> None:
    evidence.act()
    with canary(rf"{variable}='' is set to the empty string, which is taken as it is: unset it"):
        choose_target("cuda", {variable: ""})


@pytest.mark.spec("step4.empty-env", role="canary")
def test_an_empty_device_is_refused_by_name(canary: Canary, evidence: Evidence) -> None:
    evidence.act()
    with canary(r"IREE_DEVICE='' is set to the empty string"):
        choose_device("cuda", {"IREE_DEVICE": ""})


# > because the compiler would take the empty string as it is
@pytest.mark.spec("step4.empty-env", role="canary")
@pytest.mark.parametrize("target", [Target(backend="", chip=""), Target(backend="cuda", chip="")], ids=str)
def test_the_compiler_itself_takes_it(graph: Graph, compile_graph: CompileGraph, target: Target) -> None:
    with pytest.raises(CompileError) as refusal:
        compile_graph(graph.path, target)

    assert "IREE_" not in str(refusal.value).partition("to run it again")[0]


@pytest.fixture
def run_on(
    graph: Graph, tmp_path: Path, outer: Mapping[str, str], evidence: Evidence
) -> Callable[[Path, str], Json]:
    """A function that loads a module on a device by its name in IREE, in a process that sees no card."""

    def run_there(module: Path, device: str) -> Json:
        evidence.act()
        evidence.ran_on("cpu", [])
        config = LowererConfig(name="iree", platform="cpu", environment={"IREE_DEVICE": device})
        with DeviceProcess(env=pin_environment(outer, ()), log_path=tmp_path / "device.log") as process:
            process.call("open", budget=evidence.left, config=to_json(config))
            opened = process.call(
                "session_open", budget=evidence.left, path=str(module), source=str(graph.path)
            )
            process.call(
                "invoke",
                budget=evidence.left,
                session=opened["session"],
                fn=graph.entry,
                arrays=graph.inputs(SEED),
            )
            facts: Json = process.call("facts", budget=evidence.left)
            return facts

    return run_there


@pytest.fixture
def cpu_module(graph: Graph, compile_graph: CompileGraph, tmp_path: Path) -> Path:
    """What `IREE_BACKEND=llvm-cpu` alone compiles."""
    target = choose_target("cpu", {"IREE_BACKEND": "llvm-cpu"})
    compile_graph(graph.path, target)
    return tmp_path / f"{graph.path.stem}-{target.chip}.vmfb"


# > a module for `llvm-cpu` needs `IREE_DEVICE=local-task` too
@pytest.mark.spec("step4.one-var")
def test_with_its_device_the_module_runs(cpu_module: Path, run_on: Callable[[Path, str], Json]) -> None:
    assert run_on(cpu_module, "local-task")["describe"]["driver"] == "local-task"


@pytest.mark.spec("step4.one-var", role="canary")
def test_on_the_default_device_it_does_not(
    cpu_module: Path, run_on: Callable[[Path, str], Json], canary: Canary
) -> None:
    with canary(r"no device 'cuda'|HAL device .* not found or unavailable"):
        run_on(cpu_module, "cuda")
