"""What the user asked for, read once from the command line and the ini file. No decision beyond defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.rules.spec import CONDITIONS, TRACKS, is_condition


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the user asked for. Lists are as given; `lowerers` is null where none was named."""

    gpus: str
    project: str | None
    document: str | None
    catalog: Path | None
    lowerers: tuple[str, ...] | None
    tracks: tuple[str, ...]
    require: tuple[str, ...]
    waivers: Path | None
    wait: float
    out: Path


def read_settings(config: pytest.Config) -> Settings:
    """The settings of this run.

    :raises UsageError: for a word that none of the lists has.
    """
    named_lowerers = _words(config, "lowerers")  # which there are, other packages have a say in
    return Settings(
        gpus=config.known_args_namespace.gpus,
        project=_value(config, "project"),
        document=config.getini("cudaboot_document") or None,
        catalog=_path(config, "catalog"),
        lowerers=named_lowerers or None,
        tracks=_words(config, "tracks", TRACKS) or ("toolchain", "box"),
        require=_words(config, "require", CONDITIONS),
        waivers=_path(config, "waive") or _present(config.rootpath / "cudaboot-waivers.toml"),
        wait=_seconds(config, "wait"),
        out=out_folder(config),
    )


def out_folder(config: pytest.Config) -> Path:
    """Where the verdict goes. It is known even if the rest of what was asked for makes no sense."""
    return _path(config, "out") or config.rootpath / ".cudaboot"


def _value(config: pytest.Config, name: str) -> str | None:
    """The option if it was given, else the ini key, else None; an empty string is as not given."""
    given: str | None = getattr(config.known_args_namespace, f"cudaboot_{name}")
    return given or config.getini(f"cudaboot_{name}") or None


def _path(config: pytest.Config, name: str) -> Path | None:
    """A path from the command line is relative to the working directory, one from the ini to the rootdir."""
    given: str | None = getattr(config.known_args_namespace, f"cudaboot_{name}")
    if given:
        return config.invocation_params.dir / given
    configured: str = config.getini(f"cudaboot_{name}")
    return config.rootpath / configured if configured else None


def _words(config: pytest.Config, name: str, known: tuple[str, ...] = ()) -> tuple[str, ...]:
    value = _value(config, name)
    words = tuple(word.strip() for word in value.split(",")) if value else ()
    for word in words:
        if known and word not in known and not (name == "require" and is_condition(word)):
            raise UsageError(f"--cudaboot-{name}: {word!r} is not one of {', '.join(known)}")
    return words


def _seconds(config: pytest.Config, name: str) -> float:
    value = _value(config, name) or "0"
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"--cudaboot-{name}: {value!r} is not a number of seconds")
    return seconds


def _present(path: Path) -> Path | None:
    return path if path.is_file() else None
