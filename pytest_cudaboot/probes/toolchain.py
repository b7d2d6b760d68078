"""Where plugins and compilers lie. It looks, and says how it found; it neither loads a plugin nor judges a version."""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import ToolMissingError
from pytest_cudaboot.probes.process import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

VERSION_BUDGET = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A file that a search found.

    :param found_via: the place, in words: a variable, a virtual environment, a package.
    :param version: of the distribution that brought it, or as the program tells itself; None if nothing says.
    """

    path: Path
    found_via: str
    version: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """An installed package, as its metadata names it."""

    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What the small functions of a search are given.

    :param driver_cuda: the newest CUDA of the driver, as 1000 x major + 10 x minor; None if unknown.
    """

    environ: Mapping[str, str]
    site_packages: Sequence[Path] = ()
    project_root: Path | None = None
    driver_cuda: int | None = None


Place = tuple[Path, str]


def package_folders() -> list[Path]:
    """Where the running interpreter's packages lie, in the order in which an import would look."""
    return [Path(place) for place in dict.fromkeys((*sys.path, *site.getsitepackages())) if place]


def find_cpu_plugin(environ: Mapping[str, str], site_packages: Sequence[Path]) -> Found:
    """The PJRT plugin for the CPU.

    :raises ToolMissingError: with every place tried.
    """
    search = Search(environ=environ, site_packages=site_packages)
    named = _named_by("CUDABOOT_CPU_PLUGIN", search)
    return _first(
        "PJRT plugin for the CPU", search, (named,) if named else (_xla_cpu_pjrt, _lammps_jax_pjrt_cpu)
    )


def find_cuda_plugin(
    environ: Mapping[str, str], project_root: Path, site_packages: Sequence[Path], driver_cuda: int | None
) -> Found:
    """The PJRT plugin for CUDA, the newest that the driver supports first.

    :raises ToolMissingError: with every place tried.
    """
    search = Search(
        environ=environ, site_packages=site_packages, project_root=project_root, driver_cuda=driver_cuda
    )
    named = _named_by("PJRT_PLUGIN", search)
    return _first("PJRT plugin for CUDA", search, (named,) if named else (_project_venv, _interpreter))


def find_iree_compile(
    environ: Mapping[str, str], project_root: Path, site_packages: Sequence[Path] = ()
) -> Found:
    """The IREE compiler: the project's own, else the one on PATH, else the one beside the running interpreter.

    :raises ToolMissingError: with every place tried.
    """
    # It is run from other folders than the one that it was looked for in.
    search = Search(environ=environ, project_root=project_root.absolute(), site_packages=site_packages)
    return _first("iree-compile", search, (_project_bin, _iree_on_path, _iree_package))


def find_iree_runtime(site_packages: Sequence[Path]) -> Found:
    """The IREE runtime that the running interpreter would import, by the file in which it says its commit.

    :raises ToolMissingError: with every place tried.
    """
    return _first("IREE runtime", Search(environ={}, site_packages=site_packages), (_iree_runtime,))


def find_compiler(environ: Mapping[str, str], name: str = "gcc") -> Found:
    """A C compiler on PATH, with the first line that it says of itself.

    :raises ToolMissingError: with the path searched and the package that brings it.
    """
    path = environ.get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is None:
        raise ToolMissingError(
            f"no C compiler {name!r} in PATH={path!r}; install one: `apt install gcc libc6-dev` on Debian and "
            "Ubuntu, `dnf install gcc` on Fedora and its kin"
        )
    said = run_command([found, "--version"], cwd="/", env=environ, budget=VERSION_BUDGET).stdout
    return Found(path=Path(found), found_via="PATH", version=said.partition("\n")[0] or None)


def distribution_of(path: Path) -> Distribution | None:
    """The installed package whose RECORD lists a file; None if none does."""
    for root in _package_folders(path):
        # A symbolic link is a file of its own in a RECORD, so it is not followed.
        relative = os.path.relpath(path.absolute(), root)
        for record in sorted(root.glob("*.dist-info/RECORD")):
            lines = record.read_text(errors="replace").splitlines()
            if any(line.startswith((f"{relative},", f'"{relative}",')) for line in lines):
                return _distribution(record.parent)
    return None


def _first(what: str, search: Search, finders: Sequence[Callable[[Search], Sequence[Place]]]) -> Found:
    tried = []
    for path, via in (place for finder in finders for place in finder(search)):
        if path.is_file():
            owner = distribution_of(path)
            return Found(path=path, found_via=via, version=owner.version if owner else None)
        tried.append(f"\n  {path} ({via})")
    raise ToolMissingError(f"no {what}; tried, in order:{''.join(tried) or ' nothing'}")


def _named_by(variable: str, search: Search) -> Callable[[Search], Sequence[Place]] | None:
    """A finder for an explicit request, which stands alone; None if there is none. Empty is unset."""
    value = search.environ.get(variable)
    return (lambda _: [(Path(value), f"{variable}={value}")]) if value else None


def _xla_cpu_pjrt(search: Search) -> Sequence[Place]:
    relative = "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"
    return [(folder / relative, "package xla-cpu-pjrt") for folder in search.site_packages]


def _lammps_jax_pjrt_cpu(search: Search) -> Sequence[Place]:
    relative = "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"
    return [(folder / relative, "package lammps-jax-pjrt-cpu") for folder in search.site_packages]


def _project_venv(search: Search) -> Sequence[Place]:
    venv = Path(search.project_root or ".", ".venv")
    folders = sorted(venv.glob("lib/python3.*/site-packages"), key=_numbers, reverse=True)
    # A place that is not there has to be in the list of places as well.
    places = _cuda_plugins(folders, search) or [venv / "lib/python3.*/site-packages" / _cuda_pattern("*")]
    return [(path, "the project's .venv") for path in places]


def _interpreter(search: Search) -> Sequence[Place]:
    places = _cuda_plugins(search.site_packages, search)
    return [
        (path, "the running interpreter's packages")
        for path in places or [folder / _cuda_pattern("*") for folder in search.site_packages]
    ]


def _project_bin(search: Search) -> Sequence[Place]:
    return [(Path(search.project_root or ".", ".venv/bin/iree-compile"), "the project's .venv")]


def _iree_on_path(search: Search) -> Sequence[Place]:
    folders = search.environ.get("PATH", os.defpath).split(os.pathsep)
    return [(Path(folder, "iree-compile"), "PATH") for folder in folders if folder]


def _iree_package(search: Search) -> Sequence[Place]:
    relative = "iree/compiler/_mlir_libs/iree-compile"
    return [(folder / relative, "the running interpreter's packages") for folder in search.site_packages]


def _iree_runtime(search: Search) -> Sequence[Place]:
    relative = "iree/_runtime_libs/version.py"
    return [(folder / relative, "package iree-base-runtime") for folder in search.site_packages]


def _cuda_pattern(major: str) -> str:
    return f"jax_plugins/xla_cuda{major}/xla_cuda_plugin.so"


def _cuda_plugins(folders: Sequence[Path], search: Search) -> list[Path]:
    """Plugins in some package folders: those that the driver supports, newest first, then the others."""
    found = [path for folder in folders for path in folder.glob(_cuda_pattern("[0-9]*"))]
    limit = None if search.driver_cuda is None else search.driver_cuda // 1000

    def rank(path: Path) -> tuple[bool, int]:
        major = _numbers(path.parent)[-1]
        beyond = limit is not None and major > limit
        return beyond, major if beyond else -major

    return sorted(found, key=rank)


def _numbers(path: Path) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", os.fspath(path)))


def _package_folders(path: Path) -> list[Path]:
    """The package folder that a file lies in, or those beside the `bin` that it lies in."""
    inside = [
        folder for folder in path.absolute().parents if folder.name in {"site-packages", "dist-packages"}
    ]
    return inside[:1] or sorted(path.absolute().parent.parent.glob("lib/python3*/site-packages"))


def _distribution(folder: Path) -> Distribution:
    file = folder / "METADATA"
    metadata = file.read_text(errors="replace") if file.is_file() else ""
    name, version = (re.search(rf"^{key}: *(\S+)", metadata, re.MULTILINE) for key in ("Name", "Version"))
    fallback = folder.name.removesuffix(".dist-info").partition("-")
    return Distribution(name=name[1] if name else fallback[0], version=version[1] if version else fallback[2])
