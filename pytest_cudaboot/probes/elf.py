"""What an ELF file says about itself: names needed, offered and searched. It never loads or runs the file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import ELFError, ELFParseError
from elftools.construct import ConstructError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pytest_cudaboot.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = b"\x7fELF"

# What the parser raises over a file that lies: it checks little, and follows any offset.
_STUMBLES = (
    ELFError,
    ELFParseError,
    ConstructError,
    ValueError,
    AttributeError,
    TypeError,
    AssertionError,
    OSError,
)


def is_elf(path: Path) -> bool:
    """Whether a file begins as an ELF file does; a truncated one still does."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def needed(path: Path) -> tuple[str, ...]:
    """Libraries that the loader must find before this one, in the order of the file."""
    return tuple(tag.needed for tag in _dynamic(path, "DT_NEEDED"))


def soname(path: Path) -> str | None:
    """The name under which consumers remember this library; None if it carries none."""
    return next((tag.soname for tag in _dynamic(path, "DT_SONAME")), None)


def rpath(path: Path) -> tuple[str, ...]:
    """Folders that the file itself adds to the search, unexpanded; RUNPATH wins where both are present."""
    by_kind = {
        tag.entry.d_tag: getattr(tag, "runpath", None) or getattr(tag, "rpath", None)
        for tag in _dynamic(path, "DT_RPATH", "DT_RUNPATH")
    }
    text = by_kind.get("DT_RUNPATH") or by_kind.get("DT_RPATH") or ""
    return tuple(folder for folder in text.split(":") if folder)


def yields_to_environment(path: Path) -> bool:
    """Whether `LD_LIBRARY_PATH` is searched before the file's own folders: with RUNPATH it is, with RPATH not."""
    return bool(_dynamic(path, "DT_RUNPATH"))


def exported(path: Path) -> frozenset[str]:
    """Functions and objects that others may bind; a linker leaves no hidden name among the global ones."""
    with _opened(path) as elf:
        table = elf.get_section_by_name(".dynsym")
        return frozenset(symbol.name for symbol in _symbols(table) if _is_offered(symbol))


def undefined(path: Path) -> frozenset[str]:
    """Names that somebody else must offer."""
    with _opened(path) as elf:
        table = elf.get_section_by_name(".dynsym")
        return frozenset(s.name for s in _symbols(table) if s.entry.st_shndx == "SHN_UNDEF" and s.name)


def static_symbols(path: Path) -> frozenset[tuple[str, str]] | None:
    """Pairs (name, letter as `nm` prints it: `t` local, `T` global) of the functions; None if the file is stripped."""
    with _opened(path) as elf:
        table = elf.get_section_by_name(".symtab")
        if table is None:
            return None
        functions = [s for s in _symbols(table) if s.entry.st_info.type == "STT_FUNC" and _is_defined(s)]
        return frozenset((s.name, "t" if s.entry.st_info.bind == "STB_LOCAL" else "T") for s in functions)


def compilers(path: Path) -> tuple[str, ...]:
    """What the compilers of its parts left in it, each once; nothing if it was stripped of that."""
    with _opened(path) as elf:
        section = elf.get_section_by_name(".comment")
        words = section.data().split(b"\0") if section is not None else []
        return tuple(sorted({word.decode(errors="replace") for word in words if word}))


def _is_defined(symbol: Any) -> bool:
    return bool(symbol.entry.st_shndx != "SHN_UNDEF")


def _is_offered(symbol: Any) -> bool:
    return (
        _is_defined(symbol) and bool(symbol.name) and symbol.entry.st_info.bind in {"STB_GLOBAL", "STB_WEAK"}
    )


def _symbols(table: Any) -> Iterator[Any]:
    if isinstance(table, SymbolTableSection):
        yield from table.iter_symbols()


def _dynamic(path: Path, *kinds: str) -> list[Any]:
    with _opened(path) as elf:
        sections = (section for section in elf.iter_sections() if isinstance(section, DynamicSection))
        return [tag for section in sections for tag in section.iter_tags() if tag.entry.d_tag in kinds]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file as an ELF file; what the parser stumbles over is an error that names the file."""
    if not is_elf(path):
        raise DataError(f"{path} is not an ELF file: it begins with {path.read_bytes()[:4]!r}")
    with path.open("rb") as file:
        try:
            yield ELFFile(file)
        except _STUMBLES as error:
            size = path.stat().st_size
            raise DataError(
                f"{path} is a damaged ELF file ({size} bytes): {str(error) or type(error).__name__}"
            ) from error
