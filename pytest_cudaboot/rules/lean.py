"""What a document has Lean do, what the result of a proof depends on, and what a build's or a trainer's words show.

Pure: texts come in, facts go out. No lakefile is read as anything but bytes.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BINARIES = ".lake/build/bin/"
MINIMAL, ALL = "ProofsMinimal", "Proofs"
FEWEST = 2  # losses: one alone does not fall
_LOSS = re.compile(
    r"\bloss\b[\"']?\s*[=:]?\s*(?P<value>[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf))", re.IGNORECASE
)
_RESUMED = re.compile(r"^.*\b(?:resum(?:ed|ing)|checkpoint loaded)\b.*$", re.IGNORECASE | re.MULTILINE)
_SORRY = re.compile(r"^.*declaration uses ['`]?sorry.*$", re.MULTILINE)
# The loader's words for a library that it opens, with LD_DEBUG=files.
_OPENED = re.compile(rb"(?:file=|calling init: )(\S*(?:libcuda\.so|lib(?:pjrt|iree)_ffi\.so)\S*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """A program that the document builds with lake and then runs.

    :param arguments: what it is run with, as printed.
    """

    name: str
    arguments: tuple[str, ...]


def pinned_version(text: str) -> str | None:
    """The version in a `lean-toolchain` file: `leanprover/lean4:v4.12.0` means 4.12.0."""
    match = re.search(r"v?(\d+\.\d+\.\d+\S*)\s*$", text.strip())
    return match[1] if match else None


def told_version(text: str) -> str | None:
    """The version of Lean in what `lake --version` or `lean --version` prints."""
    match = re.search(r"Lean \(?version (\d+\.\d+\.\d+[\w.-]*)", text)
    return match[1] if match else None


def documented_trainers(text: str) -> tuple[Trainer, ...]:
    """The programs of a document for which both `lake build NAME` and a line that runs NAME are printed, in its order."""
    lines = list(_commands(text))
    built = {word for words in lines if words[:2] == ["lake", "build"] for word in words[2:]}
    found: dict[str, Trainer] = {}
    for words in lines:
        for index, word in enumerate(words):
            name = word.removeprefix("./").removeprefix(BINARIES)
            if name != word.removeprefix("./") and name in built:
                found.setdefault(name, Trainer(name=name, arguments=tuple(words[index + 1 :])))
    return tuple(found.values())


def _commands(text: str) -> Iterator[list[str]]:
    for block in parse(text).blocks:
        for line in block.text.splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                continue
            if words:
                yield words


def proofs_key(files: Mapping[str, bytes], target: str) -> str:
    """What the result of a proof depends on: toolchain, manifest, lakefiles and sources, and what was asked for."""
    digest = hashlib.sha256(f"{target}\0".encode())
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode(errors="surrogateescape") + files[name])
    return digest.hexdigest()


def unproved(output: str) -> list[str]:
    """Lines of a build that say that a proof was left out."""
    return [match.group().strip() for match in _SORRY.finditer(output)]


def opened(trace: bytes) -> list[str]:
    """The driver's library and the shims among what the loader opened, by its own trace."""
    return sorted({found.decode(errors="replace") for found in _OPENED.findall(trace)})


def losses(log: str) -> list[float]:
    """The losses of a trainer's log, whatever else stands in its lines."""
    return [float(match["value"]) for match in _LOSS.finditer(log)]


def log_faults(log: str) -> list[str]:
    """What speaks against a trainer's log; empty if it shows a run that began fresh and learns."""
    told, faults = losses(log), []
    if (resumed := _RESUMED.search(log)) is not None:
        faults.append(f"it did not begin fresh: {resumed.group().strip()!r}")
    if len(told) < FEWEST:
        return [*faults, f"it tells {len(told)} losses; a run that trains tells at least {FEWEST}"]
    if bad := [loss for loss in told if not math.isfinite(loss)]:
        return [*faults, f"{len(bad)} of {len(told)} losses are not finite"]
    if not min(told[1:]) < told[0]:
        faults.append(f"its loss never fell below the first, {told[0]:g}, in {len(told)}")
    return faults
