"""Architecture notes. BOOTSTRAP.md#architecture-notes"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import choose_target
from pytest_cudaboot.run.fixtures import Runner

from .nets import plainest_net

FLAG = "--iree-hal-target-backends=cuda"


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
