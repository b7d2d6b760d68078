"""Build a project's C sources into a private folder, once per content. Nothing is ever written into the project."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import BuildError, CommandError, DataError, ProjectError, UsageError
from pytest_cudaboot.probes.patience import alone
from pytest_cudaboot.probes.process import run_command
from pytest_cudaboot.probes.toolchain import Found, find_compiler
from pytest_cudaboot.rules.build_line import SHIM_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["SHIM_LINE", "build_iree_shim", "build_program", "build_shim", "expand", "rebuild_command"]

BUILD_BUDGET = 300.0
SOURCE_SUFFIXES = frozenset({".c", ".h", ".inc"})
# Step 3's line, as a shell reads it: two variables and a pattern stand in it.
IREE_LINE = (
    *("gcc", "-fPIC", "-O2", "-shared", "-DIREE_ALLOCATOR_SYSTEM_CTL=iree_allocator_libc_ctl"),
    *("-I$IREE_SRC/runtime/src", "ffi/iree_ffi.c", "-Wl,-z,defs", "-Wl,--start-group"),
    *("$IREE_BUILD/build_tools/third_party/*/lib*.a", "-Wl,--whole-archive"),
    *("$IREE_BUILD/runtime/src/iree/runtime/libiree_runtime_unified.a", "-Wl,--no-whole-archive"),
    *("-Wl,--end-group", "-lm", "-lpthread", "-ldl", "-o", "ffi/libiree_ffi.so"),
)

# gcc reads these, so that they belong to what was compiled.
_COMPILER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")


def build_shim(
    project_root: Path,
    out_dir: Path,
    *,
    env: Mapping[str, str],
    cc: str | None = None,
    line: Sequence[str] = SHIM_LINE,
) -> Path:
    """Run the documented line with its output in a private folder; the file is reused while nothing changed.

    :param env: the whole environment of the compiler.
    :param cc: another compiler than the line's first word.
    :param line: the document's words, ending in or containing `-o FILE`.
    :raises ToolMissingError: there is no compiler.
    :raises BuildError: it refused the sources or could not write; the message is a recipe.
    :raises BusyError: another process has been building the same for too long.
    """
    words = [cc or line[0], *line[1:]]
    if "-o" not in words[:-1]:
        raise UsageError(f"the build line {' '.join(line)!r} has no `-o FILE` that could be led elsewhere")
    return _build(project_root, out_dir, words, env)


def build_iree_shim(
    project_root: Path,
    out_dir: Path,
    source: Path,
    build: Path,
    *,
    env: Mapping[str, str],
    line: Sequence[str] = IREE_LINE,
) -> Path:
    """The same for the IREE shim, linked from a build tree that has been judged before.

    :param source: the checkout of IREE.
    :param build: its build tree.
    :raises BuildError: as for :func:`build_shim`.
    """
    return build_shim(project_root, out_dir, env=env, line=expand(line, source, build))


def expand(line: Sequence[str], source: Path, build: Path) -> tuple[str, ...]:
    """A line's words as a shell makes them of `$IREE_SRC`, `$IREE_BUILD` and file patterns."""
    places = {"$IREE_SRC": str(source), "$IREE_BUILD": str(build)}
    words: list[str] = []
    for word in line:
        full = word
        for variable, place in places.items():
            full = full.replace(variable, place)
        # A pattern that matches nothing stays as it is, and the compiler says so.
        words += (_matches(full) or [full]) if "*" in full else [full]
    return tuple(words)


def _matches(pattern: str) -> list[str]:
    fixed, _, varied = pattern.partition("*")
    folder, _, start = fixed.rpartition("/")
    return sorted(str(path) for path in Path(folder or ".").glob(f"{start}*{varied}"))


def rebuild_command(source: Path, build: Path, line: Sequence[str] = IREE_LINE) -> str:
    """The IREE shim's line, ready to paste in the project's root."""
    return shlex.join(expand(line, source, build))


def build_program(
    project_root: Path,
    source: str,
    out_dir: Path,
    libs: Sequence[str],
    *,
    env: Mapping[str, str],
    cc: str = "gcc",
) -> Path:
    """Compile one program of a project, such as its trainer.

    :param source: relative to the project's root.
    :param libs: what comes after the source: `-ldl`, `-lm`.
    """
    return _build(project_root, out_dir, [cc, "-O2", source, *libs, "-o", Path(source).stem], env)


def content_key(project_root: Path, words: Sequence[str], compiler: Found, env: Mapping[str, str]) -> str:
    """What a build depends on: the sources, the words, the compiler, and the variables that it reads."""
    named = {project_root / word for word in words if word.endswith(".c")}
    sources = set(_sources(project_root, named))
    if not sources:
        raise ProjectError(f"{project_root} has no C sources in ffi/")
    digest = hashlib.sha256()
    for archive in (Path(word) for word in words if word.endswith(".a")):
        digest.update(f"{archive}\0{_sha256(archive) if archive.is_file() else None}\0".encode())
    for path in sorted(sources | {path for path in named if path.is_file()}):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(project_root)}\0{len(text)}\0".encode() + text)
    variables = [f"{name}={env[name]}" for name in _COMPILER_VARIABLES if name in env]
    digest.update("\0".join([str(compiler.path), compiler.version or "", *words, *variables]).encode())
    return digest.hexdigest()


def _sources(project_root: Path, named: Iterable[Path]) -> Iterator[Path]:
    """All of `ffi/`, and what lies beside a source that is elsewhere: nobody knows what includes what."""
    beside = {path.parent for path in named} - {project_root / "ffi"}
    places = [(project_root / "ffi").rglob("*"), *(folder.glob("*") for folder in beside)]
    for place in places:
        yield from (path for path in place if path.suffix in SOURCE_SUFFIXES and path.is_file())


def _build(project_root: Path, out_dir: Path, words: Sequence[str], env: Mapping[str, str]) -> Path:
    compiler = find_compiler(env, words[0])
    key = content_key(project_root, words, compiler, env)
    place = words.index("-o") + 1
    target = out_dir / key / Path(words[place]).name
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        # One build per content on the machine; whoever waited finds the file.
        with alone(out_dir / f"{key}.lock", BUILD_BUDGET, f"building {target.name}"):
            if not _is_as_built(target):
                _compile_into(target, words, place, project_root, env)
    except OSError as error:
        raise BuildError(f"no build in {out_dir}: {error}; to build elsewhere, set XDG_CACHE_HOME") from error
    return target


def _is_as_built(target: Path) -> bool:
    """Whether the file is there, with the hash that was written beside it when it was built."""
    seal = _seal(target)
    return target.is_file() and seal.is_file() and seal.read_text() == _sha256(target)


def _seal(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile_into(
    target: Path, words: Sequence[str], place: int, project_root: Path, env: Mapping[str, str]
) -> None:
    from pytest_cudaboot.probes import elf

    # A killed build leaves this folder; the next one, under the same lock, begins by removing it.
    private = target.parent.with_name(f"{target.parent.name}.partial")
    shutil.rmtree(private, ignore_errors=True)
    private.mkdir()
    made = private / target.name
    command = [*words[:place], os.fspath(made), *words[place + 1 :]]
    try:
        run_command(command, cwd=project_root, env=env, budget=BUILD_BUDGET)
        # What is not readable as ELF must not be found by the next build, whatever the compiler said.
        elf.needed(made)
        target.parent.mkdir(exist_ok=True)
        _seal(made).write_text(_sha256(made))
        _seal(made).replace(_seal(target))
        made.replace(target)
    except (CommandError, DataError) as error:
        raise BuildError(str(error)) from error
    finally:
        shutil.rmtree(private, ignore_errors=True)
