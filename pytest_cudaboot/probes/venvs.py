"""Throw-away environments that are kept: one package each, installed once, under a lock. It imports nothing of them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from pytest_cudaboot.probes.process import run_command

# With these, an environment would see packages of another one, and take them for its own.
FOREIGN = ("PYTHONPATH", "PYTHONHOME")
WHOLE = "installed"  # written last: an environment without it was cut off, and is made again


def environment_with(requirement: str, folder: Path, *, env: Mapping[str, str], budget: float) -> Path:
    """A virtual environment with a package and what it requires.

    :param requirement: pinned, `iree-base-compiler==3.11.0`; it names the environment.
    :param folder: where such environments are kept.
    :param env: the whole environment of pip.
    :raises CommandError: it can not be installed; the message is pip's.
    """
    root, own = folder / requirement, {name: env[name] for name in env if name not in FOREIGN}
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{requirement}.lock"):
        if not (root / WHOLE).is_file():
            shutil.rmtree(root, ignore_errors=True)
            run_command([sys.executable, "-m", "venv", root], cwd=folder, env=own, budget=budget)
            pip: list[str | Path] = [root / "bin/python", "-m", "pip", "install", "--quiet", requirement]
            run_command(pip, cwd=folder, env=own, budget=budget)
            (root / WHOLE).touch()
    return root
