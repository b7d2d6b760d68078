"""A PJRT client in a process of its own, and what can be known of the memory that it takes. It holds no test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.reservation import Announcement, announcements
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle
from pytest_cudaboot.run.worker import WORKER

from .nets import plainest_net

FRACTION = "LEAN_MLIR_MEM_FRACTION"
RAISED = 0.97
SEED = 31
CONTEXT = 64 << 20  # bytes: less than any process takes on a card, more than a card's own bookkeeping


@dataclass(frozen=True, slots=True)
class Client:
    """A PJRT client in a fresh device process, and what can be known of what it takes.

    :param then: bytes in use on its card before it was made, by UUID; empty on the CPU.
    """

    lowerer: LowererHandle
    log: Path
    project: Project
    gpu: Gpu | None
    then: dict[str, int | None]

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def limit(self) -> int:
        """What the allocator may take, by the client's own word."""
        return int(self.lowerer.facts["describe"]["bytes_limit"])

    @property
    def total(self) -> int:
        """The driver's total, which is not NVML's."""
        (device,) = self.lowerer.call("driver")["devices"]
        return int(device["memory"])

    @property
    def options(self) -> dict[str, object]:
        """The create options that the shim passed."""
        return dict(self.lowerer.facts["describe"]["create_options"])

    def announced(self) -> Announcement:
        """The plugin's line on the allocator of its first card."""
        return next(line for line in announcements(self.text) if line.allocator == "BFCAllocator")

    def work(self) -> None:
        """Run the plainest graph once: a reservation is taken with the first buffer."""
        graph = plainest_net(self.project).forward
        session = self.lowerer.open_session(graph.path)
        session.invoke(graph.inputs(SEED))
        session.close()

    @property
    def before(self) -> int | None:
        """Bytes in use on the card before the client was made, if that can be known."""
        return self.then[self.gpu.uuid] if self.gpu else None

    def grown(self) -> int | None:
        """Bytes by which the use of the card has grown since before the client was made, if that can be known."""
        return nvml.grown_since(self.then)[self.gpu.uuid] if self.gpu else None


def touched(grown: Mapping[str, int | None]) -> list[str]:
    """The cards that a process has come to since, as far as NVML says.

    :param grown: bytes by which the use of each card has grown.
    """
    return [uuid for uuid, more in grown.items() if more is not None and more > CONTEXT]


@pytest.fixture
def client(
    open_with: Callable[..., LowererHandle],
    request: pytest.FixtureRequest,
    project: Project,
    evidence: Evidence,
) -> Callable[..., Client]:
    """A function that makes a client with settings in its environment, in a process of its own."""
    worker = request.config.stash[WORKER]

    def make(**settings: str) -> Client:
        worker.devices.retire()
        then = nvml.memory_of([worker.gpu.uuid] if worker.gpu else [])
        lowerer = open_with(**settings)
        return Client(lowerer, Path(evidence.notes["device_log"]), project, worker.gpu, then)

    return make
