"""How the run's own pytest was called, as far as a part of it can be called again; text only, and no secrets."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import pytest_cudaboot

# What bears on what is run, and no more: an environment may hold what nobody else should read.
NAMED = (
    *("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_TF32_OVERRIDE"),
    *("XLA_FLAGS", "TF_XLA_FLAGS", "PJRT_PLUGIN", "PJRT_REPLICAS", "PJRT_FFI_RESIDENT"),
)
PREFIXES = ("CUDABOOT_", "LEAN_MLIR_", "IREE_", "XLA_")
OUR_OWN = ("CUDABOOT_RUN", "CUDABOOT_LANE")
KEPT = ("-p", "-c", "-o", "-W")  # options of pytest's that change what a test is
KEPT_LONG = ("--rootdir", "--config-file", "--override-ini", "--import-mode", "--confcutdir")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shell:
    """What a shell needs to run tests of this run again.

    :param variables: values, or None for what has to be absent.
    :param folder: where pytest was started, and `roots` where node ids may begin.
    :param options: as they were typed.
    """

    variables: Mapping[str, str | None]
    folder: Path
    roots: tuple[Path, ...]
    options: tuple[str, ...]
    python: str = sys.executable

    def test(self, nodeid: str) -> str:
        """A node id that is found from anywhere."""
        file, colons, rest = nodeid.partition("::")
        places = (root / file for root in self.roots)
        return f"{next((place for place in places if place.exists()), file)}{colons}{rest}"


def variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """The variables in force before the run changed any, and the package's own place, if it is not installed."""
    names = [name for name in environ if name.startswith(PREFIXES) and name not in OUR_OWN]
    told: dict[str, str | None] = {name: environ.get(name) for name in sorted({*NAMED, *names})}
    root = os.fspath(Path(pytest_cudaboot.__file__).parents[1])
    if Path(root).name not in {"site-packages", "dist-packages"}:
        given = told["PYTHONPATH"]
        told["PYTHONPATH"] = f"{given}{os.pathsep}{root}" if given else root
    return told


def shell_of(config: pytest.Config, told: Mapping[str, str | None], roots: Sequence[Path]) -> Shell:
    """The shell of this run.

    :param told: what `variables` said of the environment.
    :param roots: further folders where node ids may begin.
    """
    folder = config.invocation_params.dir
    words = [str(word) for word in config.invocation_params.args]
    return Shell(
        variables=told,
        folder=folder,
        roots=(config.rootpath, folder, *roots),
        options=tuple(_settled(config, list(_kept(words)))),
    )


def _settled(config: pytest.Config, words: list[str]) -> list[str]:
    """What pytest worked out from other arguments is told, so that it is the same for one test."""
    if not any(word.startswith("--rootdir") for word in words):
        words += ["--rootdir", str(config.rootpath)]
    if config.inipath is not None and not any(word.startswith(("-c", "--config-file")) for word in words):
        words += ["-c", str(config.inipath)]
    return words


def _kept(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in (*KEPT, *KEPT_LONG):
            yield from (word, next(rest, ""))
        elif word.startswith(tuple(f"{name}=" for name in KEPT_LONG)) or (
            word[:2] in KEPT and not word.startswith("--")
        ):
            yield word


def exports(shell: Shell) -> Iterator[str]:
    """The environment, as lines of a POSIX shell."""
    absent = [name for name, value in shell.variables.items() if value is None]
    if absent:
        yield f"unset {' '.join(absent)}"
    for name, value in shell.variables.items():
        if value is not None:
            yield f"export {name}={shlex.quote(value)}"
