"""Step 3: CUDA runtime FFI, whether a library is what its sources make. BOOTSTRAP.md#step-3-cuda-runtime-ffi-ffilibiree_ffiso"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.lowerers.build import build_iree_shim
from pytest_cudaboot.probes import elf
from pytest_cudaboot.rules.freshness import Built, Freshness, Judgement, judge_freshness
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.iree_build import IreeTree


def built(path: Path) -> Built:
    """What a library says of how it came to be."""
    return Built(
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        compilers=elf.compilers(path),
        exported=elf.exported(path),
    )


@pytest.fixture
def judged(
    sources: Path,
    tmp_path: Path,
    iree_tree: IreeTree,
    evidence: Evidence,
    outer: dict[str, str],
) -> Callable[[Path], Judgement]:
    """A function that holds a library against one that is built afresh, in a private folder."""

    def judge(path: Path) -> Judgement:
        evidence.act()
        made = build_iree_shim(sources, tmp_path / "again", iree_tree.source, iree_tree.build, env=outer)
        return judge_freshness(path.name, built(path), built(made), iree_tree.rebuild)

    return judge


# > A library that is older than its sources fails late and elsewhere
@pytest.mark.spec("step3.fresh")
def test_the_shim_is_what_its_sources_make(
    judged: Callable[[Path], Judgement], iree_shim: Path, evidence: Evidence
) -> None:
    judgement = judged(iree_shim)

    evidence.note(freshness=judgement.freshness.value, reason=judgement.reason)
    if judgement.freshness is Freshness.UNDECIDABLE:
        pytest.skip(judgement.reason)
    assert judgement.freshness is Freshness.FRESH, judgement.reason


@pytest.mark.spec("step3.fresh", role="canary")
def test_a_shim_of_yesterdays_sources_is_stale(
    judged: Callable[[Path], Judgement], built_iree_shim: Path, sources: Path, tmp_path: Path
) -> None:
    yesterdays = shutil.copy2(built_iree_shim, tmp_path / "libiree_ffi.so")
    guard = sources / "ffi" / "iree_guard.c"
    guard.write_text(guard.read_text().replace("the session is NULL", "there is no session"))

    judgement = judged(Path(yesterdays))

    assert judgement.freshness is Freshness.STALE
    assert re.search(r"libiree_ffi\.so is stale: its code is not .*; rebuild it: gcc ", judgement.reason)


@pytest.mark.spec("step3.fresh", role="canary")
def test_a_rebuild_cures_a_stale_shim(
    stand_in: Callable[..., Path], judged: Callable[[Path], Judgement], built_iree_shim: Path
) -> None:
    stale = stand_in("libiree_ffi.so", "HAL_CUDA", "LACKS_SOFTLABEL")

    before = judged(stale)
    shutil.copy2(built_iree_shim, stale)
    after = judged(stale)

    assert (before.freshness, after.freshness) == (Freshness.STALE, Freshness.FRESH)
    assert "lacks iree_ffi_train_step_adam_softlabel; rebuild it: gcc" in before.reason
