"""How the native code is built: without a warning, by each compiler, and exporting what its header says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import StringTableSection, SymbolTableSection

from tests.ffi.helpers import BUILD_SHIM, Saboteurs, build

STRICT = "-std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror -fvisibility=hidden"
COMPILERS = [compiler for compiler in ("gcc", "clang") if compiler == "gcc" or shutil.which(compiler)]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimise", ["-O0", "-O2"])
def test_shim_has_no_warning(project: Path, tmp_path: Path, compiler: str, optimise: str) -> None:
    flags = (*STRICT.split(), optimise, "-fPIC", "-shared")

    build(compiler, *flags, "ffi/pjrt_ffi.c", "-ldl", "-o", tmp_path / "shim.so", cwd=project)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimise", ["-O0", "-O2"])
def test_trainer_has_no_warning(project: Path, tmp_path: Path, compiler: str, optimise: str) -> None:
    flags = (*STRICT.split(), optimise)

    build(compiler, *flags, "ffi/trainer.c", "-ldl", "-lm", "-o", tmp_path / "trainer", cwd=project)
    build(compiler, *flags, "ffi/plugin_options.c", "-ldl", "-o", tmp_path / "options", cwd=project)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_header_stands_alone_in_c_and_in_cpp(project: Path, compiler: str) -> None:
    for language in ("c", "c++"):
        build(compiler, "-Wall", "-Wextra", "-fsyntax-only", "-x", language, "ffi/iree_ffi.h", cwd=project)


def symbols(library: Path) -> tuple[set[str], set[str]]:
    """The functions that a library exports, and the libraries that it needs."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        table, dynamic = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".dynamic")
        assert isinstance(table, SymbolTableSection)
        assert isinstance(dynamic, DynamicSection)
        own = [s for s in table.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"]
        exported = {s.name for s in own if s["st_info"]["bind"] == "STB_GLOBAL"}
        strings = elf.get_section(dynamic["sh_link"])
        assert isinstance(strings, StringTableSection)
        needed = [tag["d_val"] for tag in dynamic.iter_tags("DT_NEEDED")]
        return exported, {strings.get_string(offset) for offset in needed}


def declared(project: Path) -> set[str]:
    text = re.sub(r"/\*.*?\*/", "", (project / "ffi/iree_ffi.h").read_text(), flags=re.DOTALL)
    return set(re.findall(r"\b((?:iree|pjrt)_ffi_\w+)\(", text))


def test_exports_are_what_the_header_declares(project: Path, shim: Path) -> None:
    exported, _ = symbols(shim)

    assert exported == declared(project)
    assert sum(name.startswith("iree_ffi_") for name in exported) == 10


def test_hidden_visibility_exports_the_same(project: Path, shim: Path, tmp_path: Path) -> None:
    flags = (*STRICT.split(), "-fPIC", "-shared")
    build("gcc", *flags, "ffi/pjrt_ffi.c", "-ldl", "-o", tmp_path / "shim.so", cwd=project)

    assert symbols(tmp_path / "shim.so") == symbols(shim)


def test_shim_needs_the_c_library_only(shim: Path) -> None:
    _, needed = symbols(shim)

    assert needed <= {"libc.so.6", "libdl.so.2"}


def test_two_builds_are_identical(project: Path, shim: Path) -> None:
    build(*BUILD_SHIM.replace("ffi/libpjrt_ffi.so", "again.so").split(), cwd=project)

    assert (project / "again.so").read_bytes() == shim.read_bytes()


def test_every_saboteur_is_built(checkout: Path, saboteur: Saboteurs) -> None:
    names = [source.stem for source in (checkout / "broken/plugins").glob("*.c")]

    assert len(names) > 12
    assert all(saboteur(name).is_file() for name in names)


@pytest.mark.parametrize("suffix", ["c", "h"])
def test_lines_fit_eighty_columns(checkout: Path, suffix: str) -> None:
    for folder in ("reference/ffi", "broken/plugins"):
        for source in (checkout / folder).glob(f"*.{suffix}"):
            long = [n for n, line in enumerate(source.read_text().splitlines(), 1) if len(line) > 80]
            assert long == [], source
