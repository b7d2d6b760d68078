"""Before anything is collected: which cards, which suite, how many workers. It rewrites pytest's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.run.lanes import HOST, LANE_VARIABLE

SUITE_FILES = "test_*.py"
CATALOG = "catalog.toml"
RESTARTS_PER_WORKER = (
    8  # more deaths than that in one place have a reason that another worker does not change
)
HOST_WORKERS_MAX = 4
THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """What is run.

    :param arguments: files to name on the command line, if none were.
    :param catalog: the catalogue beside them, or null.
    :param complete: whether it is a whole suite.
    """

    arguments: tuple[str, ...]
    catalog: Path | None
    complete: bool


def suite_of(config: pytest.Config, named: Path | None) -> Suite:
    """The suite that this run's command line means.

    :param named: the catalogue that was asked for, or null.
    """
    positional = config.known_args_namespace.file_or_dir
    return find_suite(positional, config.invocation_params.dir, config.rootpath, named)


def find_suite(positional: Sequence[str], base: Path, root: Path, named: Path | None) -> Suite:
    """The suite that the positional arguments mean; none of them means the acceptance suite.

    Files are named, not their folder: a foreign `python_files` can not empty it.

    :param base: the working directory; `root` the rootdir, above which no catalogue is looked for.
    :param named: the catalogue from the command line; it must exist.
    """
    if named is not None and not named.is_file():
        raise UsageError(f"--cudaboot-catalog {str(named)!r} is not a file")
    if not positional:
        folder = suite_root() / "acceptance"
        return Suite(arguments=_files(folder), catalog=named or folder / CATALOG, complete=True)
    paths = [base / argument.partition("::")[0] for argument in positional]
    beside = _catalog_beside(paths[0], root)
    whole = beside is not None and _covers(positional, paths, beside.parent)
    return Suite(arguments=(), catalog=named or beside, complete=whole)


def check_distribution(namespace: Any) -> None:
    """Refuse what contradicts one worker per card.

    :raises UsageError: for `-n`, `--dist`, `--tx` or `--maxprocesses` of the user's own.
    """
    for option, value, allowed in (
        ("-n", getattr(namespace, "numprocesses", None), (None, 0)),
        ("--dist", getattr(namespace, "dist", "no"), ("no", "load")),
        ("--maxprocesses", getattr(namespace, "maxprocesses", None), (None,)),
        ("--tx", getattr(namespace, "tx", None) or None, (None,)),
    ):
        if value not in allowed:
            raise UsageError(
                f"{option} {value!r} does not go with --gpus, which sets one worker per card itself"
            )


def check_execution(namespace: Any) -> None:
    """Refuse what collects tests, reports them as passed and does not run them.

    :raises UsageError: for `--setup-only` and `--setup-plan`.
    """
    for name in ("setuponly", "setupplan"):
        if getattr(namespace, name, False):
            raise UsageError(
                f"--{name.replace('setup', 'setup-')} runs no test, so there is nothing to judge"
            )


def wants_workers(namespace: Any, *, xdist: bool) -> bool:
    """Whether tests run in workers, or in this process (`-n 0`, a debugger, no xdist)."""
    in_process = namespace.numprocesses == 0 if xdist else True
    return not (in_process or namespace.usepdb or namespace.trace or namespace.collectonly)


def worker_arguments(cards: int, hosts: int) -> list[str]:
    """The xdist options for so many workers."""
    workers = cards + hosts
    # Each place has a limit of its own, which the scheduler knows; xdist's ends the whole run, so it is never reached.
    restarts = (RESTARTS_PER_WORKER + 1) * workers
    return ["-n", str(workers), "--dist", "load", "--max-worker-restart", str(restarts)]


def host_workers(cpus: int, cards: int) -> int:
    """How many workers do host work: all there is of a small machine without cards, half beside cards."""
    share = cpus if cards == 0 else cpus // 2
    return max(1, min(HOST_WORKERS_MAX, share))


def pins(gpus: Sequence[Gpu], hosts: int, environ: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """One environment a worker: each card once, then the host workers, who see no card.

    A worker computes oracles beside others that do, so its NumPy keeps to one core unless told otherwise.
    """
    threads = {THREADS: environ.get(THREADS, "1")}
    cards = [{**threads, LANE_VARIABLE: gpu.uuid, "CUDA_VISIBLE_DEVICES": gpu.uuid} for gpu in gpus]
    host = {**threads, LANE_VARIABLE: HOST, "CUDA_VISIBLE_DEVICES": ""}
    return (*cards, *(dict(host) for _ in range(hosts)))


def insert(early_config: pytest.Config, args: list[str], extra: Sequence[str]) -> None:
    """Add arguments where every plugin that decides later sees them: the list, and the known namespace."""
    args[:0] = extra
    early_config.known_args_namespace = early_config._parser.parse_known_args(  # noqa: SLF001 - no public way
        args, namespace=early_config.known_args_namespace
    )


def _files(folder: Path) -> tuple[str, ...]:
    return tuple(str(path) for path in sorted(folder.glob(SUITE_FILES)))


def _catalog_beside(path: Path, root: Path) -> Path | None:
    folder = path if path.is_dir() else path.parent
    for place in (folder, *folder.parents):
        if (place / CATALOG).is_file():
            return place / CATALOG
        if place == root:
            return None
    return None


def _covers(positional: Sequence[str], paths: Sequence[Path], folder: Path) -> bool:
    """Whether the arguments name the whole folder, or all of its test files."""
    if any("::" in argument for argument in positional):
        return False
    files = {path.resolve() for path in folder.glob(SUITE_FILES)}
    named = {path.resolve() for path in paths}
    return folder.resolve() in named or files <= named
