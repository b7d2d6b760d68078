"""Fast path: XLA/PJRT, what is installed and built. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.probes import elf
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.probes.toolchain import distribution_of
from pytest_cudaboot.project import Project, suite_root
from pytest_cudaboot.rules.build_line import BuildLine
from pytest_cudaboot.rules.document import code_blocks
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle

from .conftest import Trained
from .nets import plainest_net

SEED = 21
C_LIBRARY = {"libc.so.6", "libdl.so.2", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PLUGIN_FOLDERS = re.compile(r"(jax_plugins|xla_plugins)/xla_\w+/|[\w.-]+\.dist-info/")
WARNINGS = ("-Wall", "-Wextra")
# What a bare environment lacks, in the loader's words or in the plugin's.
LACKING = re.compile(
    r"lib(?!pjrt_ffi|iree_ffi)\w+\.so[\w.]*(?=: cannot open)"
    r"|(?<=Unable to load any of {)lib\w+\.so[\w.]*"
    r"|No visible GPU devices"
)
DRIVER = re.compile(r"libcuda\.so|No visible")


# > What the second line installs is the PJRT plugin alone: no `jax`, no `jaxlib`, and nothing that it requires
@pytest.mark.spec("fast.plugin-only")
def test_the_package_is_the_plugin_only(cuda_plugin: Path, measure: Callable[..., None]) -> None:
    found = distribution_of(cuda_plugin)
    if found is None:
        pytest.skip(
            f"{cuda_plugin} belongs to no installed package, so no list of files says what came with it"
        )
    folders = [str(folder) for folder in cuda_plugin.parents if folder.name.endswith("-packages")]
    # Its own copy of the package: another interpreter's may be of another version.
    (package,) = importlib.metadata.distributions(name=found.name, path=folders[:1])
    files = [str(path) for path in package.files or ()]

    assert [path for path in files if not PLUGIN_FOLDERS.match(path)] == []
    assert [path for path in files if path.endswith(".so")] == [
        f"jax_plugins/{cuda_plugin.parent.name}/{cuda_plugin.name}"
    ]
    assert package.requires in (None, [])
    measure(plugin_bytes=cuda_plugin.stat().st_size, plugin_version=found.version)


# > It comes
# > as a finished shared library, so that there is nothing to build but two small C programs.
@pytest.mark.spec("fast.prebuilt")
@pytest.mark.parametrize("package", ["jax-cuda12-pjrt", "jax-cuda13-pjrt"])
def test_the_plugin_installs_without_a_compiler(run: Runner, tmp_path: Path, package: str) -> None:
    run([sys.executable, "-m", "venv", "bare"], device=False)
    python = tmp_path / "bare" / "bin" / "python"

    run(
        [python, "-m", "pip", "install", "--only-binary=:all:", package],
        env={"PATH": str(python.parent)},
        device=False,
    )

    installed = run([python, "-m", "pip", "list", "--format=freeze", "--exclude", "pip"], device=False).stdout
    assert [line.partition("==")[0] for line in installed.split() if not line.startswith("setuptools")] == [
        package
    ]
    assert len(list((tmp_path / "bare").rglob("xla_cuda_plugin.so"))) == 1


# > CUDA_VISIBLE_DEVICES=0 ./trainer linear data
@pytest.mark.spec("fast.block-verbatim")
def test_the_lines_as_they_are_printed(
    run: Runner, sources: Path, document_text: str, device: str, evidence: Evidence
) -> None:
    lines = code_blocks(document_text, "bash")[0].text.splitlines()
    *setup, last = [line for line in lines if line.strip()]

    run(["bash", "-euc", "\n".join(setup)], cwd=sources, device=False)
    done = run(shlex.split(last, comments=True), cwd=sources, env={"PJRT_PLUGIN": None}, check=False)

    lacks = sorted(set(LACKING.findall(done.stderr)))
    evidence.measure(lines=len(lines), lacks=lacks)
    if done.returncode != 0:
        # A bare box lacks CUDA libraries, and says which. With a card it can not lack the driver as well.
        assert [lib for lib in lacks if device == "cpu" or not DRIVER.match(lib)], done.stderr
        return
    trained = Trained.read(done)
    evidence.ran_on(trained.header["platform"], [trained.header["device"]])
    assert trained.header["device"] == device


# > gcc -fPIC -O2 -shared ffi/pjrt_ffi.c -ldl -o ffi/libpjrt_ffi.so
@pytest.mark.spec("fast.one-liner")
def test_the_documented_line_builds_the_shim(
    run: Runner, sources: Path, project: Project, evidence: Evidence
) -> None:
    line = build_line(project)
    evidence.note(build_line=line.found_via)

    done = run(line.words, cwd=sources, device=False)

    assert done.stderr == ""
    assert elf.is_elf(sources / line.words[line.words.index("-o") + 1])


# > The gcc line is the whole build of the shim, without a warning
@pytest.mark.spec("fast.one-liner")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_sources_compile_without_a_warning(
    run: Runner,
    sources: Path,
    project: Project,
    document_text: str,
    compiler: str,
    measure: Callable[..., None],
) -> None:
    if compiler == "clang" and shutil.which(compiler) is None:
        measure(clang="absent")
        return
    done = run([compiler, *build_line(project).words[1:], *WARNINGS], cwd=sources, device=False)

    warnings = done.stderr.count(" warning: ")
    measure(**{f"{compiler}_warnings": warnings})
    # Only who promises it is held to it.
    assert warnings == 0 or "without a warning" not in document_text, done.stderr


def build_line(project: Project) -> BuildLine:
    """The line that the gate builds by."""
    line = project.build_line
    assert line is not None
    return line


# > the result links libc and nothing else (libdl too,
# > where that is still a library of its own)
@pytest.mark.spec("fast.shim-links")
def test_the_shim_links_the_c_library_only(pjrt_shim: Path, measure: Callable[..., None]) -> None:
    needed = elf.needed(pjrt_shim)

    measure(shim_needs=list(needed), shim_bytes=pjrt_shim.stat().st_size)
    assert set(needed) <= C_LIBRARY


# > the shim `dlopen`s the plugin and talks to it through the
# > PJRT C API, once the API's version and the length of its table are known to fit.
@pytest.mark.spec("fast.client")
def test_the_plugin_speaks_the_c_api(
    session: Callable[[Path], SessionHandle],
    lowerer: LowererHandle,
    project: Project,
    measure: Callable[..., None],
) -> None:
    graph = plainest_net(project).forward
    opened = session(graph.path)
    made = opened.invoke(graph.inputs(SEED))
    told = lowerer.call("facts")["describe"]

    measure(pjrt_api=told.get("api"), platform_version=told.get("platform_version"))
    assert [list(array.shape) for array in made] == [out["shape"] for out in opened.signature["outputs"]]
    # A shim that tells nothing of itself is judged by what it does.
    assert not told or (told["platform"], told["api"][0]) == (lowerer.platform, 0)


@pytest.mark.spec("fast.c-api")
def test_a_newer_minor_version_is_fine(
    invoke_through: Callable[[Path], list[Any]], saboteur: Callable[[str], Path]
) -> None:
    assert len(invoke_through(saboteur("newer_minor"))) == 1


@pytest.mark.spec("fast.c-api", role="canary")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param(
            "other_major",
            r"speaks PJRT API 1\.0, this shim speaks major version 0",
            id="another major version",
        ),
        pytest.param(
            "short_table",
            r"its function table .* is too short for PJRT_Buffer_ToHostBuffer, which needs \d+",
            id="a table too short for a function that is called",
        ),
        pytest.param("no_entry", r"is no PJRT plugin \(it has no GetPjrtApi\)", id="no entry point"),
        pytest.param("null_table", r"GetPjrtApi returned NULL", id="no table"),
    ],
)
def test_a_plugin_of_another_api_is_refused(
    attempt: Callable[[str], Completed], saboteur: Callable[[str], Path], name: str, words: str
) -> None:
    plugin = saboteur(name)

    done = attempt(str(plugin))

    assert done.returncode == 1
    assert re.search(rf"\[pjrt_ffi\] .*{re.escape(str(plugin))}: {words}", done.stderr)


@pytest.mark.spec("fast.c-api", role="canary")
def test_a_plugin_that_wants_longer_arguments_is_refused(
    invoke_through: Callable[[Path], list[Any]], saboteur: Callable[[str], Path]
) -> None:
    with pytest.raises(ShimError, match=r"PJRT_ExecuteOptions: .*expected \d+, got \d+"):
        invoke_through(saboteur("demanding"))


@pytest.fixture
def saboteur(run: Runner, tmp_path: Path) -> Callable[[str], Path]:
    """A function that builds a plugin which is broken in one way; `fixtures/broken/plugins` has them."""

    def build(name: str) -> Path:
        made = tmp_path / f"{name}.so"
        source = suite_root() / "fixtures" / "broken" / "plugins" / f"{name}.c"
        run(["gcc", "-fPIC", "-shared", source, "-o", made], device=False)
        return made

    return build
