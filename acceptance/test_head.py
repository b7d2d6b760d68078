"""Head: what the document says of itself and of the box. BOOTSTRAP.md"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes.compiler import module_parts
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.document import code_blocks, links
from pytest_cudaboot.rules.targets import documented_capability, read_ptx
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner

BASH = "/bin/bash"

NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
COUNTED = re.compile(
    rf"\b(\d+|{'|'.join(NUMBERS)})(?: |\u00d7 ?|x ?)(?:\w+ ){{0,2}}(?:cards|GPUs)\b", re.IGNORECASE
)


@pytest.mark.spec("intro.links")
def test_relative_links_resolve(project: Project, document_text: str, evidence: Evidence) -> None:
    assert project.document is not None
    folder = project.document.parent
    targets = [link.target.partition("#")[0] for link in links(document_text)]
    relative = [target for target in targets if target and "://" not in target]

    evidence.measure(links=len(relative))
    assert [target for target in relative if not (folder / target).exists()] == []


@pytest.mark.spec("intro.box-size")
def test_the_document_agrees_with_itself_on_the_number_of_cards(
    document_text: str, measure: Callable[..., None]
) -> None:
    counts = card_counts(document_text)

    measure(card_counts=sorted(counts))
    assert len(counts) <= 1


@pytest.mark.spec("intro.box-size")
def test_two_numbers_of_cards_would_be_seen(evidence: Evidence) -> None:
    evidence.act()

    assert card_counts("The box has 2\u00d7 H200 GPUs; train on all four idle cards.") == {2, 4}


@pytest.mark.spec("intro.ada-sm89")
def test_capability_is_the_documented_one(gpu: Gpu, measure: Callable[..., None]) -> None:
    documented = documented_capability(gpu.name)

    measure(card=gpu.name, capability=gpu.capability, documented=documented)
    assert documented in (None, gpu.capability)


def card_counts(text: str) -> set[int]:
    """How many cards a text speaks of."""
    return {NUMBERS.get(word.lower()) or int(word) for word in COUNTED.findall(text)}


# > an unset `IREE_BACKEND` means `IREE_BACKEND=cuda`
@pytest.mark.spec("intro.default-backend")
def test_an_unset_backend_is_cuda(
    run: Runner, sources: Path, iree_compile: Path, document_text: str, measure: Callable[..., None]
) -> None:
    line = next(line for line in joined_lines(document_text) if line.startswith("iree-compile --iree-hal"))
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


def joined_lines(text: str) -> list[str]:
    """The shell lines of a document, those that go on after a backslash joined."""
    blocks = code_blocks(text, "bash")
    return [line for block in blocks for line in block.text.replace("\\\n", "").splitlines()]


def path_with(folder: Path, compiler: Path) -> str:
    """A PATH on which the compiler first says what it is asked."""
    program = folder / "bin" / "iree-compile"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "$@"\nexec {shlex.quote(str(compiler))} "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.defpath}"
