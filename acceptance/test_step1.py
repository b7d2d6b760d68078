"""Step 1: Proofs (no GPU needed — instant parity). BOOTSTRAP.md#step-1-proofs-no-gpu-needed--instant-parity"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.errors import PinnedVersionError
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes.health import room
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.rules.lean import ALL, MINIMAL, opened
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.lean import Sandbox

DOWNLOAD = 5 << 30  # bytes: what the document says of the cache
ROOM = 3 * DOWNLOAD  # it is unpacked beside itself, and then built on

WATCHER = """\
#include <dlfcn.h>
int main(void) { return dlopen("./libcuda.so.1", RTLD_NOW) == 0; }
"""


@pytest.mark.spec("step1.cache-size")
def test_there_is_room_for_the_cache_before_it_is_fetched(
    sandbox: Sandbox, measure: Callable[..., None]
) -> None:
    found = room("proofs", sandbox.root)
    fetched = sum(path.lstat().st_size for path in (sandbox.root / ".lake").rglob("*") if path.is_file())

    measure(free_bytes=found.free, fetched_bytes=fetched)
    if not fetched and found.free < ROOM:
        raise PinnedVersionError(
            f"{found.path} has {found.free >> 30} GiB free, the proofs take {ROOM >> 30}"
        )


@pytest.mark.spec("step1.cache-get")
def test_the_cache_is_fetched_and_a_second_time_not(
    lake: Callable[..., Completed], measure: Callable[..., None]
) -> None:
    first, second = lake("exe", "cache", "get"), lake("exe", "cache", "get")

    measure(first_seconds=round(first.seconds, 1), second_seconds=round(second.seconds, 1))
    assert second.seconds <= max(60.0, first.seconds)


# > For projects whose graphs come out of proved code.
@pytest.mark.spec("step1.minimal")
def test_the_smallest_set_is_proved(prove: Callable[[str], Json]) -> None:
    assert prove(MINIMAL)["target"] == MINIMAL


@pytest.mark.spec("step1.proofs")
def test_all_of_it_is_proved(prove: Callable[[str], Json]) -> None:
    assert prove(ALL)["target"] == ALL


# > what stands in their place needs
# > no card either
@pytest.mark.spec("step1.no-card")
def test_no_driver_and_no_shim_was_opened_for_it(prove: Callable[[str], Json]) -> None:
    assert prove(MINIMAL)["opened"] == []


@pytest.mark.spec("step1.no-card", role="canary")
def test_a_program_that_opens_the_driver_is_seen(
    run: Runner, tmp_path: Path, stand_in: Callable[..., Path], evidence: Evidence
) -> None:
    (tmp_path / "watched.c").write_text(WATCHER)
    run(["gcc", "watched.c", "-ldl", "-o", "watched"], device=False)
    shutil.copy(stand_in("libother.so"), tmp_path / "libcuda.so.1")

    run(["./watched"], env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "loader")}, device=False)

    seen = {name for path in tmp_path.glob("loader.*") for name in opened(path.read_bytes())}
    evidence.measure(seen=sorted(seen))
    assert "./libcuda.so.1" in seen
