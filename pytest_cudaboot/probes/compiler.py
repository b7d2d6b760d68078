"""IREE's compiler as a program: what it says of itself, and one compile in a child of its own. It keeps no module."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import CommandError, CompileError
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes.process import Completed, ended_by, run_command, tail
from pytest_cudaboot.probes.recipes import recipe
from pytest_cudaboot.rules.iree_pins import Said, read_said

VERSION_BUDGET = 60.0
COMPILE_BUDGET = 900.0
STEP, FIX = "Step 2", "pip install --force-reinstall iree-base-compiler"
_FLATBUFFER = "module.fb"


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """A compiler that answered.

    :param found_via: how it was found, in words.
    :param package: version of the distribution that brought it, which is what pins speak of; None if none did.
    """

    path: Path
    found_via: str
    package: str | None
    said: Said

    @property
    def version(self) -> str:
        """The package's version where there is one, else its own."""
        return self.package or self.said.version


def ask_version(
    path: Path, *, env: Mapping[str, str], budget: float = VERSION_BUDGET
) -> tuple[Said, Completed]:
    """What `iree-compile --version` says.

    :raises CompileError: it crashes, hangs, or says nothing of a version and a commit.
    """
    try:
        done = run_command([path, "--version"], cwd="/", env=env, budget=budget)
    except CommandError as error:
        raise CompileError(f"{STEP}: iree-compile --version failed; `{FIX}`\n{error}") from error
    said = read_said(done.stdout)
    if said is None:
        raise CompileError(
            f"{STEP}: {path} --version says no version and commit, but {done.stdout.strip()[:200]!r}; `{FIX}`"
        )
    return said, done


def compile_module(
    compiler: Path,
    source: Path,
    made: Path,
    flags: Sequence[str],
    *,
    env: Mapping[str, str],
    budget: float = COMPILE_BUDGET,
) -> Json:
    """Compile a graph into a file.

    :param env: the whole environment of the compiler.
    :returns: facts to keep beside it: `argv`, `seconds`.
    :raises CompileError: the compiler refuses the graph, crashes, hangs, or leaves something that is no whole module.
    """
    argv = [str(compiler), *flags, str(source), "-o", str(made)]
    try:
        done = run_command(argv, cwd=tempfile.gettempdir(), env=env, budget=budget, check=False)
    except CommandError as error:
        raise CompileError(f"{STEP}: {source.name} was not compiled: {error}") from error
    # The file that was written to is a temporary one.
    told = [*argv[:-1], source.with_suffix(".vmfb").name]
    again = f"to run it again:\n{recipe(told, cwd=tempfile.gettempdir(), env_changes=done.env_changes)}"
    if done.returncode != 0:
        raise CompileError(f"{STEP}: {source.name} was not compiled: {_words(done)}\n{again}")
    if fault := module_fault(made):
        raise CompileError(
            f"{STEP}: iree-compile ended well and left no whole module of {source.name}: {fault}; `{FIX}`\n{again}"
        )
    return {"argv": told, "seconds": round(done.seconds, 3)}


def _words(done: Completed) -> str:
    """The first error, which pages of the program's inner form follow; where there is none, the last words."""
    first = next((line for line in done.stderr.splitlines() if "error: " in line), None)
    return f"{first or tail(done.stderr)}\n{ended_by(done.returncode)} after {done.seconds:.1f} s"


def module_fault(path: Path) -> str | None:
    """Why a file is no whole module, or None; a module is a ZIP archive, which has a checksum for each part."""
    try:
        with zipfile.ZipFile(path) as archive:
            if _FLATBUFFER not in archive.namelist():
                return f"it has no {_FLATBUFFER}"
            broken = archive.testzip()
            return f"its part {broken} does not have its checksum" if broken else None
    except FileNotFoundError:
        return "there is no file"
    except (OSError, zipfile.BadZipFile) as error:
        return f"it is no module: {error}"


def module_parts(path: Path) -> dict[str, bytes]:
    """What a module is made of: its byte code, and an executable for each dispatch.

    :raises CompileError: it is no whole module.
    """
    if fault := module_fault(path):
        raise CompileError(f"{path}: {fault}")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def content_hash(path: Path) -> str:
    """Hash of a graph's bytes, for its key."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
