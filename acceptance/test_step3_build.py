"""Step 3: CUDA runtime FFI, the build tree and the line. BOOTSTRAP.md#step-3-cuda-runtime-ffi-ffilibiree_ffiso"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cudaboot.errors import BuildError, ShimError
from pytest_cudaboot.lowerers.build import IREE_LINE, build_iree_shim, expand
from pytest_cudaboot.probes import elf
from pytest_cudaboot.probes.iree_tree import given
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.rules.document import code_blocks
from pytest_cudaboot.rules.iree_tree import ARCHIVES, TreeFacts, commit_fault, tree_faults
from pytest_cudaboot.rules.shim_symbols import driver_fault, drivers
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.iree_build import IreeTree
from pytest_cudaboot.run.worker import WORKER

DEFINE, GROUP = (
    "-DIREE_ALLOCATOR_SYSTEM_CTL=iree_allocator_libc_ctl",
    ("-Wl,--start-group", "-Wl,--end-group"),
)
WHOLE = ("-Wl,--whole-archive", "-Wl,--no-whole-archive")
WARNINGS = ("-Wall", "-Wextra", "-Werror")
OTHER_COMMIT = "0" * 40
CC = "gcc"


@pytest.fixture
def line(document_text: str) -> list[str]:
    """The document's own line for the IREE shim; a project without one has ours."""
    blocks = (block.text.replace("\\\n", " ") for block in code_blocks(document_text, "bash"))
    lines = (line for block in blocks for line in block.splitlines() if "iree_ffi.c" in line)
    return shlex.split(next(lines, shlex.join(IREE_LINE)), comments=True)


@pytest.fixture
def link(run: Runner, sources: Path, iree_tree: IreeTree) -> Callable[[Sequence[str]], Completed]:
    """A function that runs a line in a private copy of the project, whatever becomes of it."""

    def make(words: Sequence[str]) -> Completed:
        full = expand(words, iree_tree.source, iree_tree.build)
        return run(full, cwd=sources, device=False, check=False)

    return make


# > linked from a
# > checkout of IREE at `$IREE_SRC` and its build tree at `$IREE_BUILD`.
@pytest.mark.spec("step3.cmake")
def test_what_the_shim_is_linked_from_is_fit(request: pytest.FixtureRequest, evidence: Evidence) -> None:
    evidence.act()
    if given(request.config.stash[WORKER].environ) is None:
        # Without a tree the library itself shows how its tree was set up.
        shim: Path = request.getfixturevalue("iree_shim")
        evidence.note(shim=str(shim), needed=list(elf.needed(shim)))
        assert [name for name in elf.needed(shim) if "iree" in name] == []
        return
    tree: IreeTree = request.getfixturevalue("iree_tree")
    evidence.note(iree_src=tree.facts.source, iree_build=tree.facts.build)
    faults = tree_faults(tree.facts)
    if faults:
        pytest.fail("\n".join(faults))


FIT = TreeFacts(
    source="/src",
    build="/build",
    commit=OTHER_COMMIT,
    modified=False,
    cache={"IREE_HAL_DRIVER_CUDA": "ON", "CMAKE_HOME_DIRECTORY": "/src"},
    archives=ARCHIVES,
    header=True,
)


@pytest.mark.spec("step3.cmake", role="canary")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("IREE_HAL_DRIVER_CUDA", "OFF"),
        ("IREE_HAL_DRIVER_HIP", "ON"),
        ("BUILD_SHARED_LIBS", "ON"),
        ("IREE_ALLOCATOR_SYSTEM", "mimalloc"),
    ],
)
def test_a_tree_with_another_setting_is_refused(evidence: Evidence, name: str, value: str) -> None:
    evidence.act()
    assert tree_faults(FIT) == ()

    (fault,) = tree_faults(replace(FIT, cache={**(FIT.cache or {}), name: value}))

    assert re.search(rf"Step 3: {name} is '{value}' in .*CMakeCache\.txt.*configure with -D{name}=", fault)


@pytest.mark.spec("step3.cmake", role="canary")
@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_tree_without_an_archive_is_refused(evidence: Evidence, archive: str) -> None:
    evidence.act()

    (fault,) = tree_faults(replace(FIT, archives=tuple(name for name in ARCHIVES if name != archive)))

    assert f"lacks {archive}; build it: `cmake --build" in fault


@pytest.mark.spec("step3.tree-commit", role="canary")
@pytest.mark.parametrize("commit", [OTHER_COMMIT, None])
def test_a_tree_of_another_commit_is_refused(evidence: Evidence, commit: str | None) -> None:
    evidence.act()

    fault = commit_fault(replace(FIT, commit=commit), "f" * 40)

    assert fault is not None
    assert re.search(rf"the compiler of {'f' * 40}; check out that commit, build it again", fault)


# > Then, from this folder, the shim
@pytest.mark.spec("step3.build")
def test_the_documented_line_builds_the_shim(
    link: Callable[[Sequence[str]], Completed],
    line: list[str],
    built_iree_shim: Path,
    sources: Path,
    measure: Callable[..., None],
) -> None:
    done = link(line)

    made = sources / "ffi" / "libiree_ffi.so"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.recipe()
    assert "cuda" in (drivers(elf.static_symbols(made)) or ())
    assert elf.exported(made) == elf.exported(built_iree_shim)
    measure(shim_bytes=made.stat().st_size)


@pytest.mark.spec("step3.build")
def test_our_sources_raise_no_warning(link: Callable[[Sequence[str]], Completed], line: list[str]) -> None:
    # IREE's own headers are a vendor's, so they are not what is judged here.
    words = ["-isystem" + word.removeprefix("-I") if word.startswith("-I") else word for word in line]

    done = link([*words, *WARNINGS])

    assert (done.returncode, done.stderr) == (0, ""), done.recipe()


# > Without the define, `iree_allocator_system` is undefined. Without the archives
# > of `third_party`, `flatcc_verify_*` are, and without the group around them too
@pytest.mark.spec("step3.build", role="canary")
@pytest.mark.parametrize(
    ("dropped", "words"),
    [
        pytest.param(
            lambda word: word == DEFINE,
            r"(undefined reference to|implicit declaration of function) .iree_allocator_system",
            id="no allocator define",
        ),
        pytest.param(
            lambda word: "third_party" in word, r"undefined reference to .flatcc_verify_", id="no flatcc"
        ),
        pytest.param(lambda word: word in GROUP, r"undefined reference to .flatcc_verify_", id="no group"),
        pytest.param(
            lambda word: word.endswith("libiree_runtime_unified.a"),
            r"undefined reference to .iree_runtime_",
            id="no runtime",
        ),
    ],
)
def test_without_a_part_the_line_fails_as_documented(
    link: Callable[[Sequence[str]], Completed],
    line: list[str],
    dropped: Callable[[str], bool],
    words: str,
) -> None:
    left = [word for word in line if not dropped(word)]
    assert len(left) < len(line), f"the document's line has no such part: {shlex.join(line)}"

    done = link(left)

    assert done.returncode != 0
    assert re.search(words, done.stderr), done.stderr


@pytest.fixture
def without_whole_archive(link: Callable[[Sequence[str]], Completed], line: list[str], sources: Path) -> Path:
    """The shim, linked by the line without the two words around the runtime."""
    done = link([word for word in line if word not in WHOLE])
    assert done.returncode == 0, done.recipe()
    return sources / "ffi" / "libiree_ffi.so"


# > `--whole-archive` is for runtimes in which nothing refers to a driver, so that a linker leaves it out
@pytest.mark.spec("step3.whole-archive")
def test_with_it_the_driver_is_there(built_iree_shim: Path, evidence: Evidence) -> None:
    evidence.act()

    assert "cuda" in (drivers(elf.static_symbols(built_iree_shim)) or ())


@pytest.mark.spec("step3.whole-archive", role="canary")
def test_without_it_the_driver_is_left_out(
    without_whole_archive: Path, iree_rebuild: str, canary: Callable[[str], AbstractContextManager[None]]
) -> None:
    found = drivers(elf.static_symbols(without_whole_archive))

    with canary("has no iree_hal_cuda_driver_module_register"):
        if (fault := driver_fault(without_whole_archive.name, found, iree_rebuild)) is not None:
            raise ShimError(fault)


@pytest.mark.spec("step3.whole-archive", role="control")
def test_it_was_really_left_out(without_whole_archive: Path, line: list[str], built_iree_shim: Path) -> None:
    assert set(WHOLE) <= set(line)
    # What nothing refers to is not there, so it is the smaller one.
    assert without_whole_archive.stat().st_size < built_iree_shim.stat().st_size


# > `-DUSE_HIP` is the override for a card of the other vendor
@pytest.mark.spec("step3.build", role="canary")
def test_the_override_does_not_link_from_a_tree_without_that_driver(
    link: Callable[[Sequence[str]], Completed], line: list[str]
) -> None:
    done = link([*line, "-DUSE_HIP"])

    assert done.returncode != 0
    assert "iree_hal_hip_driver_module_register" in done.stderr


@pytest.mark.spec("step3.build", role="canary")
def test_what_the_compiler_refuses_is_a_recipe(
    sources: Path,
    tmp_path: Path,
    iree_tree: IreeTree,
    evidence: Evidence,
    outer: dict[str, str],
) -> None:
    evidence.act()
    guard = sources / "ffi" / "iree_guard.c"
    guard.write_text(f"#error not today\n{guard.read_text()}")

    with pytest.raises(BuildError, match=r"iree_guard\.c:1:2: error: #error not today") as refusal:
        build_iree_shim(sources, tmp_path / "made", iree_tree.source, iree_tree.build, env=outer)

    assert f"{CC} -fPIC" in str(refusal.value)
