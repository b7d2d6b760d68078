"""Architecture notes. BOOTSTRAP.md#architecture-notes"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import choose_target
from pytest_cudaboot.run.fixtures import Runner

from .nets import plainest_net

FLAG = "--iree-hal-target-backends=cuda"
A_LOWERER = re.compile(r"\b(iree|pjrt|xla)", re.IGNORECASE)


# > From one backend of IREE to another, only a flag of the compiler differs (`--iree-hal-target-backends=cuda`)
@pytest.mark.spec("arch.flag")
def test_the_flag_is_taken_without_a_word(
    run: Runner, iree_compile: Path, project: Project, tmp_path: Path, measure: Callable[..., None]
) -> None:
    target = choose_target("cuda", {})
    argv: list[str | Path] = [
        iree_compile,
        *target.flags,
        plainest_net(project).forward.path,
        "-o",
        tmp_path / "made.vmfb",
    ]

    done = run(argv, device=False)

    measure(seconds=round(done.seconds, 3))
    assert FLAG in target.flags
    assert "deprecat" not in (done.stdout + done.stderr).lower()


# > Nothing above it changes with it: not the
# > graphs, not the training loop.
@pytest.mark.spec("arch.zero-changes")
def test_graphs_and_training_loop_name_no_lowerer(project: Project, measure: Callable[..., None]) -> None:
    loop = project.path / "ffi" / "trainer_loop.c"
    graphs = [graph for name in project.nets for graph in (project.forward(name), project.step(name))]
    texts = {path.name: path.read_text(encoding="utf-8") for path in (loop, *graphs)}

    digest = hashlib.sha256("".join(texts[name] for name in sorted(texts)).encode()).hexdigest()
    measure(sources=len(texts), sha256_of_what_both_read=digest)
    assert [name for name, text in texts.items() if A_LOWERER.search(text)] == []


def test_a_name_of_a_lowerer_is_known() -> None:
    assert A_LOWERER.search('if (strcmp(lowerer, "iree") == 0)')
    assert not A_LOWERER.search("stablehlo.exponential %max")
