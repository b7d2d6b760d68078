"""Step 2: Install IREE compiler. BOOTSTRAP.md#step-2-install-iree-compiler-pip--identical-to-rocm"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pytest_cudaboot.errors import PinnedVersionError
from pytest_cudaboot.probes.compiler import Compiler, ask_version
from pytest_cudaboot.probes.toolchain import find_iree_compile
from pytest_cudaboot.probes.venvs import FOREIGN
from pytest_cudaboot.project import Project, suite_root
from pytest_cudaboot.rules.iree_pins import PACKAGE, find_pin, require_pinned, require_same_commit
from pytest_cudaboot.rules.iree_target import cuda_target
from pytest_cudaboot.rules.targets import read_ptx
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.handles import LowererHandle

Canary = Callable[..., AbstractContextManager[None]]

CompileGraph = Callable[..., dict[str, bytes]]

LOCKS = "requirements*.txt"
PATTERNS = (
    suite_root() / "fixtures" / "reference" / "nets"
)  # the patterns are the compiler's matter, whatever the project
TARGET = cuda_target("sm_86")
DISTRIBUTE = r"error: 'func\.func' op failed to distribute"
BEFORE_ALL = "3.9.0"  # older than what any of the document's pins would allow


@pytest.fixture
def pins(project: Project, document_text: str) -> dict[str, str]:
    """Where the project says which compiler, and what it says."""
    texts = {"document": document_text}
    texts |= {path.name: path.read_text() for path in sorted(project.path.glob(LOCKS))}
    return {name: pin for name, text in texts.items() if (pin := find_pin(text))}


# > iree-compile --version
@pytest.mark.spec("step2.version")
def test_the_compiler_says_version_and_commit(
    iree_compile: Path, outer: Mapping[str, str], evidence: Evidence, measure: Callable[..., None]
) -> None:
    said, done = ask_version(iree_compile, env=outer, budget=evidence.left)

    measure(build=said.version, commit=said.commit, seconds=round(done.seconds, 3))
    evidence.note(argv=done.argv)


# > The version that counts for this pin is the package's
@pytest.mark.spec("step2.pin")
def test_the_package_satisfies_each_pin(
    iree_compiler: Compiler, pins: dict[str, str], measure: Callable[..., None], evidence: Evidence
) -> None:
    assert pins, "neither the document nor a lock file pins iree-base-compiler"
    measure(package=iree_compiler.version, build=iree_compiler.said.version)
    evidence.note(pins=pins, found_via=iree_compiler.found_via)

    for pin in pins.values():
        require_pinned(iree_compiler.version, pin)


@pytest.mark.spec("step2.pin", role="canary")
def test_an_older_package_is_refused(pins: dict[str, str], canary: Canary, evidence: Evidence) -> None:
    for pin in pins.values():
        evidence.act()
        with canary(rf"iree-base-compiler {BEFORE_ALL} is not .*; install it: `pip install"):
            require_pinned(BEFORE_ALL, pin)


# > Compiler and runtime must be of one commit
@pytest.mark.spec("step2.commit")
def test_what_runs_is_of_the_compilers_commit(
    iree_compiler: Compiler, lowerer: LowererHandle, measure: Callable[..., None]
) -> None:
    runtime = lowerer.facts["describe"]["commit"]

    measure(compiler=iree_compiler.said.commit, runtime=runtime)
    require_same_commit(iree_compiler.said.commit, runtime)


@pytest.mark.spec("step2.commit", role="canary")
def test_another_commit_is_refused(
    iree_compiler: Compiler, lowerer: LowererHandle, canary: Canary, evidence: Evidence
) -> None:
    evidence.act()
    other = lowerer.facts["describe"]["commit"][::-1]
    with canary("install both packages in one version"):
        require_same_commit(iree_compiler.said.commit, other)


# > the same package for every backend
@pytest.mark.spec("step2.backend-agnostic")
def test_the_package_has_each_backend(run: Runner, iree_compile: Path, measure: Callable[..., None]) -> None:
    done = run([iree_compile, "--iree-hal-list-target-backends"], device=False)
    have = set(done.stdout.split())

    measure(backends=sorted(have & {"cuda", "rocm", "llvm-cpu", "vulkan-spirv", "metal-spirv", "vmvx"}))
    assert {"cuda", "rocm", "llvm-cpu"} <= have


# > pip install 'iree-base-compiler>=3.12'
@pytest.mark.spec("step2.install")
def test_the_pip_line_installs(
    run: Runner, documented: Callable[[str], list[str]], tmp_path: Path, measure: Callable[..., None]
) -> None:
    line = documented("pip install 'iree-base-compiler")
    bare: dict[str, str | None] = dict.fromkeys(FOREIGN)
    run([sys.executable, "-m", "venv", tmp_path / ".venv"], env=bare, device=False)
    run([tmp_path / ".venv/bin/python", "-m", *line], env=bare, device=False)

    found = find_iree_compile({"PATH": ""}, tmp_path)
    pin = find_pin(" ".join(line))
    measure(version=found.version)
    assert found.version is not None
    assert pin is not None
    require_pinned(found.version, pin)


# > pip install 'iree-base-compiler>=3.12'
@pytest.mark.spec("step2.index")
def test_the_index_has_what_is_pinned(
    run: Runner, pins: dict[str, str], measure: Callable[..., None]
) -> None:
    done = run([sys.executable, "-m", "pip", "index", "versions", PACKAGE], device=False)
    listed = next(line for line in done.stdout.splitlines() if line.startswith("Available versions:"))
    versions = listed.partition(":")[2].replace(" ", "").split(",")

    measure(versions=len(versions), newest=versions[0])
    for pin in pins.values():
        assert any(satisfies(version, pin) for version in versions), f"the index has nothing for {pin}"


@pytest.mark.spec("step2.pre-latest")
def test_what_the_line_would_bring_beside_the_lock(
    run: Runner, documented: Callable[[str], list[str]], pins: dict[str, str], measure: Callable[..., None]
) -> None:
    line = documented("pip install 'iree-base-compiler")
    argv = [sys.executable, "-m", *line, "--dry-run", "--ignore-installed", "--no-deps"]
    done = run(argv, device=False)
    brought = re.search(rf"{PACKAGE}-(\S+)", done.stdout)

    assert brought is not None
    measure(brings=brought[1], pins=pins)
    for pin in pins.values():
        require_pinned(brought[1], pin)


# > 3.11 says `'func.func' op failed to distribute` to both
@pytest.mark.spec("step2.fix-24283")
@pytest.mark.parametrize("name", ["ln_nchw_fwd", "ln_nchw_train_step"])
def test_layer_norm_over_channels_compiles(compile_graph: CompileGraph, name: str) -> None:
    assert read_ptx(compile_graph(PATTERNS / f"{name}.mlir", TARGET))


@pytest.mark.spec("step2.fix-24283", role="canary")
@pytest.mark.parametrize("version", ["3.9.0", "3.11.0"])
def test_older_compilers_do_not_distribute_it(
    compile_graph: CompileGraph, compiler_of: Callable[[str], Path], canary: Canary, version: str
) -> None:
    with canary(DISTRIBUTE, f"{PACKAGE} {version} compiles ln_nchw_fwd"):
        compile_graph(PATTERNS / "ln_nchw_fwd.mlir", TARGET, compiler_of(version))


@pytest.mark.spec("step2.fix-24282")
@pytest.mark.parametrize("name", ["bn_nchw_fwd", "bn_nchw_train_step"])
def test_stacked_reductions_compile(compile_graph: CompileGraph, name: str) -> None:
    assert read_ptx(compile_graph(PATTERNS / f"{name}.mlir", TARGET))


@pytest.mark.spec("step2.fix-24282", role="canary")
def test_the_compiler_before_the_pin_does_not_distribute_them(
    compile_graph: CompileGraph, compiler_of: Callable[[str], Path], canary: Canary
) -> None:
    with canary(DISTRIBUTE, f"{PACKAGE} 3.11.0 compiles bn_nchw_train_step"):
        compile_graph(PATTERNS / "bn_nchw_train_step.mlir", TARGET, compiler_of("3.11.0"))


def satisfies(version: str, pin: str) -> bool:
    """Whether a version is one that a pin allows."""
    try:
        require_pinned(version, pin)
    except PinnedVersionError:
        return False
    return True
