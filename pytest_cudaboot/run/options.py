"""The command line and its ini twins, read once into frozen settings. No decision beyond defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.errors import UsageError

LOWERERS = ("xla", "iree")
TRACKS = ("toolchain", "box", "document", "proofs")
CONDITIONS = (
    "gpu",
    "cuda-plugin",
    "cpu-plugin",
    "compiler",
    "git",
    "lean",
    "iree-build",
    "net",
    "long",
    "exclusive",
)


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
    out: Path


def add_options(parser: pytest.Parser) -> None:
    """Register every option and its ini key under one group."""
    group = parser.getgroup("cudaboot", "GPU toolchain gate")
    group.addoption(
        "--gpus",
        metavar="SEL",
        default=None,
        help="Cards to run on: all, auto, none, or a list of index or UUID; without it the plugin is inert",
    )
    _add(parser, group, "project", "DIR", "Checkout under test; `reference` names the built-in one")
    _add(parser, group, "catalog", "FILE", "Another catalogue than the one beside the suite")
    _add(parser, group, "lowerers", "LIST", "Lowerers in scope, of xla and iree (default: both)")
    _add(parser, group, "tracks", "LIST", "Tracks that decide (default: toolchain,box)")
    _add(parser, group, "require", "LIST", "Conditions that must be in scope, such as gpu or net")
    _add(parser, group, "waive", "FILE", "Waivers (default: cudaboot-waivers.toml if present)")
    _add(parser, group, "out", "DIR", "Where verdict, ledger and logs go (default: .cudaboot)")
    parser.addini("cudaboot_document", "Bring-up document, relative to the project", default="")


def read_settings(config: pytest.Config) -> Settings:
    """The settings of this run.

    :raises UsageError: for a word that none of the lists has.
    """
    named_lowerers = _words(config, "lowerers", LOWERERS)
    return Settings(
        gpus=config.known_args_namespace.gpus,
        project=_value(config, "project"),
        document=config.getini("cudaboot_document") or None,
        catalog=_path(config, "catalog"),
        lowerers=named_lowerers or None,
        tracks=_words(config, "tracks", TRACKS) or ("toolchain", "box"),
        require=_words(config, "require", CONDITIONS),
        waivers=_path(config, "waive") or _present(config.rootpath / "cudaboot-waivers.toml"),
        out=out_folder(config),
    )


def out_folder(config: pytest.Config) -> Path:
    """Where the verdict goes. It is known even if the rest of what was asked for makes no sense."""
    return _path(config, "out") or config.rootpath / ".cudaboot"


def _add(parser: pytest.Parser, group: pytest.OptionGroup, name: str, metavar: str, text: str) -> None:
    group.addoption(f"--cudaboot-{name}", metavar=metavar, default=None, help=text)
    parser.addini(f"cudaboot_{name}", text, default="")


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


def _words(config: pytest.Config, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    value = _value(config, name)
    words = tuple(word.strip() for word in value.split(",")) if value else ()
    for word in words:
        if word not in known and not (name == "require" and _counted(word)):
            raise UsageError(f"--cudaboot-{name}: {word!r} is not one of {', '.join(known)}")
    return words


def _counted(word: str) -> bool:
    head, _, number = word.partition(":")
    return head == "gpus" and number.isdigit()


def _present(path: Path) -> Path | None:
    return path if path.is_file() else None
