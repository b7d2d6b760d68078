"""Multi-GPU, what a process does to cards that it merely sees. BOOTSTRAP.md#multi-gpu"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.model import Gpu, Json, to_json
from pytest_cudaboot.probes import nvml
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.reservation import Announcement, announcements
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.worker import WORKER

from .clients import touched
from .nets import plainest_net

SEED = 35


@dataclass(frozen=True, slots=True)
class Seen:
    """A client that sees some cards, at work on one device.

    :param before: bytes in use on each card before it was made, or null where NVML does not say.
    """

    facts: Json
    log: str
    before: dict[str, int | None]

    def allocators(self) -> list[Announcement]:
        return [line for line in announcements(self.log) if line.allocator == "BFCAllocator"]

    def grown(self) -> dict[str, int | None]:
        """Bytes by which the use of each card has grown since."""
        return nvml.grown_since(self.before)


@pytest.fixture
def seeing(
    request: pytest.FixtureRequest,
    gpus: tuple[Gpu, ...],
    pjrt_shim: Path,
    project: Project,
    tmp_path: Path,
    evidence: Evidence,
) -> Callable[[Sequence[Gpu]], AbstractContextManager[Seen]]:
    """A context manager with a one-device XLA process at work that sees these cards and no others."""
    worker = request.config.stash[WORKER]
    graph = plainest_net(project).forward

    @contextmanager
    def look(visible: Sequence[Gpu]) -> Iterator[Seen]:
        worker.devices.retire()
        before = nvml.memory_of(card.uuid for card in gpus)
        config, log = worker.config("xla", pjrt_shim, {}), tmp_path / "seeing.log"
        mask = ",".join(card.uuid for card in visible)
        env = {**worker.devices.environment, **config.environment, "CUDA_VISIBLE_DEVICES": mask}
        with DeviceProcess(env=env, log_path=log, pass_fds=worker.devices.locks) as process:
            facts = process.call("open", budget=evidence.left, config=to_json(config))
            opened = process.call("session_open", budget=evidence.left, path=str(graph.path))
            arrays = graph.inputs(SEED)
            process.call(
                "invoke", budget=evidence.left, session=opened["session"], fn=graph.entry, arrays=arrays
            )
            evidence.ran_on(worker.plan.platform, [card.uuid for card in visible])
            yield Seen(facts, log.read_text(errors="replace"), before)

    return look


# > Leave none unpinned: XLA makes an allocator for every card that it sees.
@pytest.mark.spec("multi.allocators")
def test_a_pinned_process_has_one_allocator(
    seeing: Callable[..., AbstractContextManager[Seen]], gpus: tuple[Gpu, ...], evidence: Evidence
) -> None:
    with seeing(gpus[:1]) as seen:
        grown = seen.grown()

        evidence.measure(grown_bytes=grown)
        assert [line.device for line in seen.allocators()] == [0]
        assert not set(touched(grown)) - {gpus[0].uuid}


@pytest.mark.spec("multi.allocators", role="canary")
def test_an_unpinned_one_makes_an_allocator_for_each_card(
    seeing: Callable[..., AbstractContextManager[Seen]], gpus: tuple[Gpu, ...], evidence: Evidence
) -> None:
    with seeing(gpus) as seen:
        evidence.measure(allocators=len(seen.allocators()), grown_by_all=seen.grown())
        assert [line.device for line in seen.allocators()] == list(range(len(gpus)))


# > A trainer uses one card, so several cards take several processes
@pytest.mark.spec("multi.iree-single")
def test_iree_uses_one_card_of_those_that_it_sees(
    open_lowerer: Callable[[str], LowererHandle],
    load: Callable[[LowererHandle, Path], SessionHandle],
    gpus: tuple[Gpu, ...],
    project: Project,
    request: pytest.FixtureRequest,
    evidence: Evidence,
) -> None:
    request.config.stash[WORKER].devices.retire()
    before = nvml.memory_of(card.uuid for card in gpus)
    graph = plainest_net(project).forward
    handle = open_lowerer("iree")
    session = load(handle, graph.path)
    session.invoke(graph.inputs(SEED))

    grown = nvml.grown_since(before)

    evidence.measure(grown_bytes=grown)
    assert len(handle.facts["describe"]["devices"]) == len(gpus)
    assert len(touched(grown)) == 1 or (None in grown.values() and not touched(grown))
