"""Throw-away environments that are kept: one package each, installed once, under a lock. It imports nothing of them."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pytest_cudaboot.probes.patience import alone
from pytest_cudaboot.probes.process import run_command

# With these, an environment would see packages of another one, and take them for its own.
FOREIGN = ("PYTHONPATH", "PYTHONHOME")
WHOLE = "installed"  # written last: an environment without it was cut off, and is made again


def environment_with(requirement: str, folder: Path, *, env: Mapping[str, str], budget: float) -> Path:
    """A virtual environment with a package and what it requires.

    :param requirement: pinned, `iree-base-compiler==3.11.0`; it names the environment.
    :param folder: where such environments are kept.
    :param env: the whole environment of pip.
    :param budget: seconds for all of it, waiting included.
    :raises CommandError: it can not be installed; the message is pip's.
    :raises BusyError: somebody else has not finished in time.
    """
    deadline = time.monotonic() + budget
    root, own = folder / requirement, {name: env[name] for name in env if name not in FOREIGN}
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / f"{requirement}.lock", budget, f"installing {requirement}"):
        if not (root / WHOLE).is_file():
            shutil.rmtree(root, ignore_errors=True)
            _install(root, requirement, own, deadline)
    return root


def _install(root: Path, requirement: str, env: Mapping[str, str], deadline: float) -> None:
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", root],
        [root / "bin/python", "-m", "pip", "install", "--quiet", requirement],
    ]
    for argv in commands:
        left = max(0.1, deadline - time.monotonic())
        run_command(argv, cwd=root.parent, env=env, budget=left)
    (root / WHOLE).touch()
