"""A command as a line to paste into a shell: what was changed in its environment, and its words, quoted."""

from __future__ import annotations

import functools
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NOT_TOLD = ("PYTEST_", "CUDABOOT_RUN", "CUDABOOT_LANE")  # a recipe is for a shell, where they mean nothing


def environment_changes(env: Mapping[str, str]) -> dict[str, str | None]:
    """What differs from the environment of the shell that started this process; None is "unset"."""
    first = _first_environment()
    changes: dict[str, str | None] = {name: value for name, value in env.items() if first.get(name) != value}
    changes.update(dict.fromkeys(name for name in first if name not in env))
    return {name: changes[name] for name in sorted(changes) if not name.startswith(_NOT_TOLD)}


def recipe(argv: Sequence[str], *, cwd: str | os.PathLike[str], env_changes: Mapping[str, str | None]) -> str:
    """A command as one line for a POSIX shell: directory, changed environment, quoted words."""
    unset = [word for name, value in env_changes.items() if value is None for word in ("-u", name)]
    assigned = [f"{name}={shlex.quote(value)}" for name, value in env_changes.items() if value is not None]
    env_words = ["env", *unset] if unset else []
    return " ".join(["cd", shlex.quote(os.fspath(cwd)), "&&", *env_words, *assigned, shlex.join(argv)])


@functools.cache
def _first_environment() -> dict[str, str]:
    """The environment as it was handed to this process, before anybody changed it."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}
