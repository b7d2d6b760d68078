"""What IREE compiles for, and where that runs: the run's platform and three variables decide. Pure; it reads no file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_CHIP = "sm_86"
GENERIC_CPU = "generic"  # a module that is compiled here runs on any machine that it travels to
BACKENDS = {"cuda": "cuda", "cpu": "llvm-cpu"}
DEVICES = {"cuda": "cuda", "cpu": "local-task"}
VARIABLES = ("IREE_BACKEND", "IREE_CHIP", "IREE_DEVICE")
_CHIP = re.compile(r"sm_[1-9][0-9]{1,2}[af]?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One way to compile.

    :param chip: `sm_86` for cuda; a CPU's name for llvm-cpu.
    """

    backend: str
    chip: str

    @property
    def flags(self) -> tuple[str, ...]:
        """The words that tell the compiler."""
        chip = "--iree-cuda-target" if self.backend == "cuda" else "--iree-llvmcpu-target-cpu"
        return (f"--iree-hal-target-backends={self.backend}", f"{chip}={self.chip}")

    def __str__(self) -> str:
        return f"{self.backend}/{self.chip}"


def cuda_target(chip: str) -> Target:
    """A target by the name of its chip.

    :raises TargetError: the name is none.
    """
    if not _CHIP.fullmatch(chip):
        raise TargetError(f"Step 4: {_named('IREE_CHIP', chip)}; a chip is written sm_86")
    return Target(backend="cuda", chip=chip)


def choose_target(platform: str, environ: Mapping[str, str]) -> Target:
    """What a run on a platform compiles for.

    The run's cards decide the backend, not a variable that a shell still has from another day; but a value that
    is none is refused, since a project's own recipe would take it as it is.

    :param platform: `cuda` or `cpu`.
    :raises TargetError: a variable has a value that is none; the message names it.
    """
    _check_choice("IREE_BACKEND", environ, tuple(BACKENDS.values()))
    chip = environ.get("IREE_CHIP")
    chosen = cuda_target(DEFAULT_CHIP if chip is None else chip)
    return chosen if platform == "cuda" else Target(backend=BACKENDS[platform], chip=GENERIC_CPU)


def choose_device(platform: str, environ: Mapping[str, str]) -> str:
    """The name by which IREE's runtime knows the platform's device.

    :raises TargetError: `IREE_DEVICE` has a value that is none.
    """
    _check_choice("IREE_DEVICE", environ, tuple(DEVICES.values()))
    return DEVICES[platform]


def _check_choice(variable: str, environ: Mapping[str, str], choices: tuple[str, ...]) -> None:
    value = environ.get(variable)
    if value is not None and value not in choices:
        raise TargetError(f"Step 4: {_named(variable, value)}; it is one of {', '.join(choices)}")


def _named(variable: str, value: str) -> str:
    empty = (
        " is set to the empty string, which is taken as it is: unset it" if not value else " means nothing"
    )
    return f"{variable}={value!r}{empty}"
