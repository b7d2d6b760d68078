"""Head: what the document says of itself and of the box. BOOTSTRAP.md"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes.compiler import module_parts
from pytest_cudaboot.rules.targets import documented_capability, read_ptx
from pytest_cudaboot.run.fixtures import Runner

BASH = "/bin/bash"


@pytest.mark.spec("intro.ada-sm89")
def test_capability_is_the_documented_one(gpu: Gpu, measure: Callable[..., None]) -> None:
    documented = documented_capability(gpu.name)

    measure(card=gpu.name, capability=gpu.capability, documented=documented)
    assert documented in (None, gpu.capability)


# > an unset `IREE_BACKEND` means `IREE_BACKEND=cuda`
@pytest.mark.spec("intro.default-backend")
def test_an_unset_backend_is_cuda(
    run: Runner,
    sources: Path,
    iree_compile: Path,
    documented_line: Callable[[str], str],
    measure: Callable[..., None],
) -> None:
    line = documented_line("iree-compile --iree-hal")
    asked: dict[str | None, str] = {}
    made: dict[str | None, dict[str, bytes]] = {}
    for value in (None, "cuda"):
        env = {"IREE_BACKEND": value, "IREE_CHIP": None, "PATH": path_with(sources, iree_compile)}
        asked[value] = run([BASH, "-c", line], cwd=sources, env=env, device=False).stdout
        made[value] = module_parts(sources / "linear_train_step.vmfb")

    measure(asked=asked[None].strip())
    assert "--iree-hal-target-backends=cuda" in asked[None]
    assert asked[None] == asked["cuda"]
    assert read_ptx(made[None]) == read_ptx(made["cuda"])


def path_with(folder: Path, compiler: Path) -> str:
    """A PATH on which the compiler first says what it is asked."""
    program = folder / "bin" / "iree-compile"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "$@"\nexec {shlex.quote(str(compiler))} "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.defpath}"
