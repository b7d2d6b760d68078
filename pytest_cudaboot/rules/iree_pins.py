"""Which IREE compiler may be used: the project's pin, and the commit that compiler and runtime must share. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_cudaboot.errors import PinnedVersionError, SkewError

PACKAGE = "iree-base-compiler"
_SAID = re.compile(r"IREE compiler version (?P<version>\S+) @ (?P<commit>[0-9a-f]{40})\b")
_RUNTIME_COMMIT = re.compile(r'"IREE"\s*:\s*"(?P<commit>[0-9a-f]{40})"')
_REQUIREMENT = re.compile(rf"(?<![\w-]){PACKAGE}(?![\w-])[^'\"`\n#;]*")
_SPECIFIED = re.compile(rf"{PACKAGE}\s*[=<>!~]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a compiler says of itself. The version is the build's; the package's may be another, and is what is pinned."""

    version: str
    commit: str


def read_said(text: str) -> Said | None:
    """From the output of `iree-compile --version`; None if it says nothing of the kind."""
    match = _SAID.search(text)
    return Said(version=match["version"], commit=match["commit"]) if match else None


def read_runtime_commit(text: str) -> str | None:
    """From the runtime package's `version.py`."""
    match = _RUNTIME_COMMIT.search(text)
    return match["commit"] if match else None


def find_pin(text: str) -> str | None:
    """The requirement on the compiler in a document or a lock file: `iree-base-compiler>=3.12`, or None.

    :raises PinnedVersionError: there are two that differ.
    """
    found = {
        match.group().strip() for match in _REQUIREMENT.finditer(text) if _SPECIFIED.match(match.group())
    }
    pins = {re.sub(r"\s+.*", "", re.sub(r"\s*([=<>!~,]+)\s*", r"\1", pin)) for pin in found}
    if len(pins) > 1:
        raise PinnedVersionError(f"Step 2: {PACKAGE} is pinned in two ways: {', '.join(sorted(pins))}")
    return pins.pop() if pins else None


def require_pinned(version: str, pin: str) -> None:
    """Hold a package's version against the project's pin, by PEP 440.

    A release candidate that the pin's bound names or implies is allowed: `>=3.12.0rc1` and `>=3.12` both let 3.13 in,
    and the first lets 3.12.0rc2 in too.

    :raises PinnedVersionError: it does not satisfy the pin, or one of the two is not written as PEP 440 has it.
    """
    # Most processes of a run hold no version against a pin.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    try:
        wanted, have = Requirement(pin), Version(version)
    except (InvalidRequirement, InvalidVersion) as error:
        raise PinnedVersionError(f"Step 2: {error} (pin {pin!r}, version {version!r})") from error
    if not wanted.specifier.contains(have):
        raise PinnedVersionError(
            f"Step 2: {wanted.name} {version} is not {wanted.specifier}; install it: `pip install '{pin}'`"
        )


def require_same_commit(compiler: str, runtime: str) -> None:
    """Compiler and runtime must come from one commit: days between them have hung trainers without a word.

    :raises SkewError: they do not.
    """
    if compiler != runtime:
        raise SkewError(
            f"the IREE compiler is of commit {compiler}, the runtime of {runtime}: install both packages in one version"
        )
