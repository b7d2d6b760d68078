"""Step 3: CUDA runtime FFI, what a built library shows. BOOTSTRAP.md#step-3-cuda-runtime-ffi-ffilibiree_ffiso"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.model import CellKey
from pytest_cudaboot.probes import elf
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.project import Project, suite_root
from pytest_cudaboot.rules.shim_symbols import (
    REQUIRED,
    declared,
    defined,
    driver_fault,
    drivers,
    included,
    missing,
    stale_fault,
    undecidable,
)
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner

CUDA = "iree_hal_cuda_driver_module_register"
UNITS = {"xla": "pjrt_ffi.c", "iree": "iree_ffi.c"}
EXTRAS = "pjrt_ffi_"


def nm(run: Runner, path: Path, *options: str) -> str:
    """What nm prints of a library."""
    return run(["nm", *options, path], device=False, check=False).stdout


# > `nm`, not `nm -D`: the driver is a local symbol, and a stripped file can not tell.
@pytest.mark.spec("step3.nm")
def test_nm_shows_the_cuda_driver(
    run: Runner, iree_shim: Path, iree_rebuild: str, evidence: Evidence
) -> None:
    evidence.note(shim=str(iree_shim))
    found = drivers(elf.static_symbols(iree_shim))
    if found is None:
        pytest.skip(undecidable(str(iree_shim)))
    if (fault := driver_fault(str(iree_shim), found, iree_rebuild)) is not None:
        pytest.fail(fault)

    assert re.search(rf"^[0-9a-f]+ [tT] {CUDA}$", nm(run, iree_shim), re.MULTILINE)


@pytest.mark.spec("step3.nm", role="canary")
def test_the_dynamic_symbols_do_not_show_it(run: Runner, stand_in: Callable[..., Path]) -> None:
    shim = stand_in("libiree_ffi.so", "HAL_CUDA")

    assert f" t {CUDA}" in nm(run, shim)
    assert CUDA not in nm(run, shim, "-D")
    assert sorted(drivers(elf.static_symbols(shim)) or ()) == ["cuda"]


@pytest.mark.spec("step3.nm", role="canary")
def test_a_stripped_library_is_undecidable_and_not_without_it(
    run: Runner, stand_in: Callable[..., Path], iree_rebuild: str
) -> None:
    shim = stand_in("libiree_ffi.so", "HAL_CUDA")
    run(["strip", shim], device=False)

    found = drivers(elf.static_symbols(shim))

    assert found is None
    assert driver_fault(shim.name, found, iree_rebuild) is None
    assert missing(elf.exported(shim)) == ()


@pytest.mark.spec("step3.nm", role="canary")
def test_a_library_without_a_driver_is_refused(stand_in: Callable[..., Path], iree_rebuild: str) -> None:
    shim = stand_in("libiree_ffi.so")

    fault = driver_fault(shim.name, drivers(elf.static_symbols(shim)), iree_rebuild)

    assert fault is not None
    assert "its HAL drivers: none (from a tree with CUDA off?)" in fault


# > on a CUDA box such a shim is the wrong one
@pytest.mark.spec("step3.use-hip")
def test_the_shim_is_not_the_other_vendors(iree_shim: Path, iree_rebuild: str, evidence: Evidence) -> None:
    evidence.act()
    found = drivers(elf.static_symbols(iree_shim))
    if found is None:
        pytest.skip(undecidable(str(iree_shim)))

    if (fault := driver_fault(str(iree_shim), found, iree_rebuild)) is not None:
        pytest.fail(fault)


@pytest.mark.spec("step3.use-hip", role="canary")
def test_a_shim_for_the_other_vendor_is_recognised(stand_in: Callable[..., Path], iree_rebuild: str) -> None:
    shim = stand_in("libiree_ffi.so", "HAL_HIP")

    fault = driver_fault(shim.name, drivers(elf.static_symbols(shim)), iree_rebuild)

    assert fault is not None
    assert re.search(r"HAL drivers: hip \(built with -DUSE_HIP.*IREE_HAL_DRIVER_CUDA=ON: gcc ", fault)


# > All ten have to be there
@pytest.mark.spec("step3.exports")
def test_the_shim_exports_what_the_header_declares(
    project: Project, iree_shim: Path, iree_rebuild: str, evidence: Evidence
) -> None:
    evidence.act()
    header = declared((project.path / "ffi" / "iree_ffi.h").read_text())
    found = elf.exported(iree_shim)
    if (fault := stale_fault(str(iree_shim), found, iree_rebuild)) is not None:
        pytest.fail(fault)

    assert found == {name for name in header if not name.startswith(EXTRAS)}


@pytest.mark.spec("step3.exports", role="canary")
def test_a_library_with_another_shims_symbols_differs(
    stand_in: Callable[..., Path], project: Project
) -> None:
    header = declared((project.path / "ffi" / "iree_ffi.h").read_text())

    assert elf.exported(stand_in("more.so", "MARKER")) - REQUIRED_SET == {"pjrt_ffi_marker"}
    assert header - elf.exported(stand_in("less.so", "LACKS_SEG")) >= {"iree_ffi_train_step_adam_seg"}


REQUIRED_SET = frozenset(REQUIRED)


# > the build may be skipped, but the line alone is not enough
@pytest.mark.spec("step3.shortcut")
def test_a_shim_that_is_there_already_is_whole(
    iree_shim: Path, iree_rebuild: str, evidence: Evidence
) -> None:
    evidence.act()

    assert stale_fault(iree_shim.name, elf.exported(iree_shim), iree_rebuild) is None


@pytest.mark.spec("step3.shortcut", role="canary")
def test_one_that_passes_nm_and_lacks_a_symbol_is_refused(
    run: Runner, stand_in: Callable[..., Path], iree_rebuild: str
) -> None:
    shim = stand_in("libiree_ffi.so", "HAL_CUDA", "LACKS_SOFTLABEL")

    assert f" t {CUDA}" in nm(run, shim), "the documented check has to pass"
    fault = stale_fault(shim.name, elf.exported(shim), iree_rebuild)
    assert fault is not None
    assert "lacks iree_ffi_train_step_adam_softlabel; rebuild it: gcc" in fault


@pytest.mark.spec("step3.sources-define")
def test_the_sources_define_what_the_header_declares(
    project: Project, request: pytest.FixtureRequest, evidence: Evidence
) -> None:
    evidence.act()
    cell: CellKey = request.getfixturevalue("_cudaboot_cell")
    texts = {path.name: path.read_text() for path in sorted((project.path / "ffi").glob("*.[ch]"))}
    lowerer = str(cell.lowerer)
    unit = included(UNITS[lowerer], texts)
    extras = {name for name in declared(texts["iree_ffi.h"]) if name.startswith(EXTRAS)}

    made = defined(texts[name] for name in unit)

    assert made >= REQUIRED_SET
    assert made - REQUIRED_SET == (extras if lowerer == "xla" else set())


@pytest.mark.spec("step3.seg-count")
def test_counting_the_symbol_finds_one(run: Runner, stand_in: Callable[..., Path]) -> None:
    assert nm(run, stand_in("libiree_ffi.so")).count("iree_ffi_train_step_adam_seg\n") == 1


# > That says nothing of the symbols that came after it.
@pytest.mark.spec("step3.seg-count", role="canary")
def test_the_count_is_one_where_another_symbol_is_missing(run: Runner, stand_in: Callable[..., Path]) -> None:
    shim = stand_in("libiree_ffi.so", "LACKS_YOLOV1")

    assert nm(run, shim).count("iree_ffi_train_step_adam_seg\n") == 1
    assert missing(elf.exported(shim)) == ("iree_ffi_train_step_adam_yolov1",)


@pytest.mark.spec("step3.stale-early")
def test_a_whole_library_is_not_called_stale(stand_in: Callable[..., Path], iree_rebuild: str) -> None:
    assert stale_fault("libiree_ffi.so", elf.exported(stand_in("libiree_ffi.so")), iree_rebuild) is None


# > The cure is the line above.
@pytest.mark.spec("step3.stale-early", role="canary")
def test_a_stale_one_is_found_without_a_linker(stand_in: Callable[..., Path], iree_rebuild: str) -> None:
    shim = stand_in("libiree_ffi.so", "LACKS_SOFTLABEL")

    fault = stale_fault(shim.name, elf.exported(shim), iree_rebuild)

    assert fault is not None
    assert fault.endswith(f"; rebuild it: {iree_rebuild}")


@pytest.fixture
def linkers(tmp_path: Path) -> dict[str, list[str]]:
    """The linkers of this machine, by the words that choose them: GNU's, and LLVM's where one is installed."""
    found = {"GNU": ["-fuse-ld=bfd"]}
    lld = shutil.which("ld.lld") or _packaged_lld()
    if lld:
        (tmp_path / "linkers").mkdir()
        (tmp_path / "linkers" / "ld.lld").symlink_to(lld)
        found["LLVM"] = ["-fuse-ld=lld", f"-B{tmp_path / 'linkers'}"]
    return found


def _packaged_lld() -> str | None:
    """The linker that IREE's compiler package brings along; by another name it is LLVM's."""
    from importlib import metadata

    try:
        files = metadata.files("iree-base-compiler") or []
    except metadata.PackageNotFoundError:
        return None
    return next((str(path.locate()) for path in files if path.name == "iree-lld"), None)


WORDS = {
    "GNU": r"undefined reference to `iree_ffi_train_step_adam_softlabel'",
    "LLVM": r"ld\.lld: error: undefined symbol: iree_ffi_train_step_adam_softlabel",
}


@pytest.fixture
def consume(run: Runner, project: Project, tmp_path: Path) -> Callable[[Path, list[str]], Completed]:
    """A function that links a program against a shim, whatever becomes of it."""
    source = suite_root() / "fixtures" / "broken" / "shims" / "consumer.c"

    def link(shim: Path, linker: list[str]) -> Completed:
        words = [f"-I{project.path / 'ffi'}", str(source), f"-L{shim.parent}", "-liree_ffi"]
        made = tmp_path / "consumer"
        return run(["gcc", *linker, *words, "-o", str(made)], device=False, check=False)

    return link


@pytest.mark.spec("step3.stale-link")
def test_a_program_links_against_a_whole_shim(
    stand_in: Callable[..., Path],
    consume: Callable[[Path, list[str]], Completed],
    linkers: dict[str, list[str]],
    measure: Callable[..., None],
) -> None:
    shim = stand_in("libiree_ffi.so")

    for name, words in linkers.items():
        done = consume(shim, words)
        assert (done.returncode, done.stderr) == (0, ""), (name, done.recipe())
    measure(linkers=", ".join(linkers))


# > a program that is linked against it stops with
# > `undefined symbol: iree_ffi_train_step_adam_softlabel` (`undefined reference to`, where the linker is GNU's)
@pytest.mark.spec("step3.stale-link", role="canary")
def test_against_a_stale_one_it_fails_in_each_linkers_words(
    stand_in: Callable[..., Path],
    consume: Callable[[Path, list[str]], Completed],
    linkers: dict[str, list[str]],
) -> None:
    shim = stand_in("libiree_ffi.so", "LACKS_SOFTLABEL")

    for name, words in linkers.items():
        done = consume(shim, words)
        assert done.returncode != 0
        assert re.search(WORDS[name], done.stderr), (name, done.stderr)


# > with a shim of 1.06 MB, runtime and all, beside a plugin of 486.6 MB, 458 times less.
@pytest.mark.spec("fast.runtime-size")
def test_the_runtime_is_hundreds_of_times_smaller(
    cuda_plugin: Path, iree_shim: Path, measure: Callable[..., None]
) -> None:
    plugin, shim = cuda_plugin.stat().st_size, iree_shim.stat().st_size

    measure(plugin_bytes=plugin, shim_bytes=shim, times_smaller=round(plugin / shim, 1))
    assert plugin > 100 * shim
