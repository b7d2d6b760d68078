"""What git says of a checkout. It only looks: nothing is written there, and no program of the checkout's choosing is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pytest_cudaboot.errors import CommandError, ToolMissingError
from pytest_cudaboot.probes.process import run_command

# Without the first, `git status` writes what it learned into the checkout's index; the others keep it from running
# what the checkout's own configuration names.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_PROGRAM = re.compile(r"filter\..*\.(clean|smudge|process)")


def ask(
    path: Path, environ: Mapping[str, str], *words: str, budget: float, any_owner: bool = False
) -> str | None:
    """The answer to a question; None where the folder is no checkout, or there is no git.

    :param any_owner: ask also of another user's checkout, which git would refuse for fear of its hooks.
    """
    trust = ("-c", f"safe.directory={path.resolve()}") if any_owner else ()
    try:
        names = run_command(
            [*_GIT, *trust, "config", "--includes", "--name-only", "--list"],
            cwd=path,
            env=environ,
            budget=budget,
        )
        quiet = [word for name in _programs(names.stdout) for word in ("-c", f"{name}=")]
        return run_command(
            [*_GIT, *trust, *quiet, *words], cwd=path, env=environ, budget=budget
        ).stdout.strip()
    except (CommandError, ToolMissingError):
        return None


def _programs(names: str) -> list[str]:
    """The settings that name a program which a look at the files would run."""
    return [name for name in names.splitlines() if _PROGRAM.fullmatch(name)]
