"""Multi-GPU. BOOTSTRAP.md#multi-gpu"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cudaboot.errors import LeaseError, PinError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml, pci
from pytest_cudaboot.probes.lease import acquire, lease_folder, obstacles
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.worker import WORKER

from .clients import touched
from .conftest import MARGIN, WITHOUT_AUTOTUNING, Trained, Training
from .cuda import CudaView

CONTEXT = 100 << 20  # bytes: what a process on a card takes at least


@pytest.fixture
def leases(request: pytest.FixtureRequest) -> Path:
    """Where the machine's leases lie."""
    return lease_folder(request.config.stash[WORKER].environ)


@pytest.fixture
def controller(request: pytest.FixtureRequest) -> int:
    """The process that this run was started as."""
    return int(request.config.stash[WORKER].plan.controller)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a trainer at work leaves on the cards of the machine.

    :param before: bytes in use on each card before it started, or null where NVML does not say.
    """

    pid: int
    before: dict[str, int | None]

    def cards(self) -> dict[str, int | None] | None:
        """The cards on which NVML names it; null in a container, where NVML numbers processes otherwise."""
        return None if pci.in_container() else nvml.cards_used_by(self.pid)

    def growth(self, uuids: Iterable[str]) -> dict[str, int | None]:
        """Bytes by which the use of some cards has grown since, whoever uses them."""
        return nvml.grown_since({uuid: self.before.get(uuid) for uuid in uuids})


@pytest.fixture
def at_work(
    gpu: Gpu, run: Runner, training: Callable[..., AbstractContextManager[Training]], evidence: Evidence
) -> Callable[[], AbstractContextManager[Footprint]]:
    """A context manager with a trainer at work on this worker's own card, which is held to be its only one."""

    @contextmanager
    def trainer() -> Iterator[Footprint]:
        run(["true"])  # the warm device process leaves the card before its memory is looked at
        before = nvml.memory_of(card.uuid for card in nvml.look().gpus)
        with training() as running:
            header = running.header()
            evidence.ran_on(header["platform"], [header["device"]])
            assert header["device"] == gpu.uuid
            yield Footprint(running.pid, before)

    return trainer


@contextmanager
def present(meeting: Path, gpu: Gpu) -> Iterator[None]:
    """Show the workers of the other cards that this one is at work, for as long as it is."""
    mark = meeting / f"at-work-{gpu.uuid}"
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


def all_met(meeting: Path, gpus: Sequence[Gpu], evidence: Evidence) -> bool:
    """Whether all cards were at work at one time; it waits for them as long as the budget lasts.

    The first that sees it leaves a note, since those that it saw may look only after it has gone.
    """
    note = meeting / "all-at-work"
    while not note.exists() and evidence.left > MARGIN:
        if all((meeting / f"at-work-{card.uuid}").exists() for card in gpus):
            note.touch()
        time.sleep(0.05)
    return note.exists()


# > each pinned by `CUDA_VISIBLE_DEVICES`, best to a UUID
@pytest.mark.spec("multi.one-per-card")
def test_every_card_trains_at_the_same_time_and_on_itself_only(
    gpu: Gpu,
    gpus: tuple[Gpu, ...],
    at_work: Callable[[], AbstractContextManager[Footprint]],
    meeting: Path,
    evidence: Evidence,
) -> None:
    with at_work() as footprint, present(meeting, gpu):
        together = all_met(meeting, gpus, evidence)

        used, grown = footprint.cards(), footprint.growth([gpu.uuid])[gpu.uuid]
        evidence.measure(together=together, memory_on=used or "unobservable", grown_bytes=grown)
        assert used is None or set(used) == {gpu.uuid}
        assert used is not None or grown is None or grown > CONTEXT
    if not together:
        pytest.skip(f"the {len(gpus)} cards were not training at the same time")


@pytest.mark.spec("multi.one-per-card")
def test_all_cards_learn_the_same(
    gpu: Gpu, gpus: tuple[Gpu, ...], train: Callable[..., Trained], meeting: Path, evidence: Evidence
) -> None:
    trained = train("linear", "--steps", "20", env={"XLA_FLAGS": WITHOUT_AUTOTUNING})
    leave(meeting / f"losses-{gpu.uuid}", json.dumps(trained.losses))

    # Whoever comes later compares with all that were there before, so that each pair of cards is compared once.
    twins = [card for card in gpus if card.uuid != gpu.uuid and card.name == gpu.name]
    there = {card.uuid: meeting / f"losses-{card.uuid}" for card in twins}
    others = {
        uuid: json.loads(path.read_text(encoding="utf-8")) for uuid, path in there.items() if path.is_file()
    }
    evidence.measure(**{f"loss_on_{gpu.uuid[:12]}": trained.losses[-1]})
    evidence.note(compared_with=sorted(others))
    assert trained.header["device"] == gpu.uuid
    assert {uuid: losses for uuid, losses in others.items() if losses != trained.losses} == {}


# > Leave none unpinned
@pytest.mark.spec("multi.outer-mask")
def test_cards_that_the_run_leaves_out_stay_untouched(
    gpus: tuple[Gpu, ...], at_work: Callable[[], AbstractContextManager[Footprint]], evidence: Evidence
) -> None:
    ours = {card.uuid for card in gpus}
    others = [card.uuid for card in nvml.look().gpus if card.uuid not in ours]

    with at_work() as footprint:
        used, grown = footprint.cards(), footprint.growth(others)

    evidence.measure(masked=len(others), grown_bytes=grown, memory_on=used or "unobservable")
    if used is not None:
        assert set(used) <= ours
    else:  # then growth is all there is to see, and it may be another user's
        assert touched(grown) == []


@pytest.mark.spec("multi.card-count")
def test_every_card_that_was_asked_for_is_there(gpus: tuple[Gpu, ...], evidence: Evidence) -> None:
    """A card that falls off the bus while a run is on is missed here, if nothing was on it just then."""
    there = {card.uuid for card in nvml.look().gpus}
    on_the_bus = {pci.normalized(card.address) for card in pci.cards(nvml.simulated_root() or Path("/"))}

    evidence.measure(asked_for=len(gpus), by_nvml=len(there), on_the_bus=len(on_the_bus))
    assert [card.uuid for card in gpus if card.uuid not in there] == []
    assert [card.pci for card in gpus if pci.normalized(card.pci) not in on_the_bus] == []


# > CUDA counts the fastest card first, `nvidia-smi` counts by PCI bus
@pytest.mark.spec("multi.order")
def test_an_index_means_the_same_card_to_cuda_and_to_nvml(
    cuda_view: Callable[..., CudaView], evidence: Evidence
) -> None:
    by_bus = [card.uuid for card in nvml.look().gpus]
    fastest_first = cuda_view(mask=None, order=None).uuids
    pci_order = cuda_view(mask=None, order="PCI_BUS_ID").uuids

    evidence.measure(orders_agree=fastest_first == by_bus)
    evidence.note(nvml_order=by_bus, cuda_default_order=fastest_first)
    assert pci_order == by_bus


# > A trainer uses one card, so several cards take several processes
@pytest.mark.spec("fast.pin-literal")
def test_the_documented_command_runs_on_the_workers_own_card(
    gpu: Gpu,
    run: Runner,
    checkout: Path,
    pjrt_plugin: Path,
    documented: Callable[[str], list[str]],
    evidence: Evidence,
) -> None:
    words = documented("CUDA_VISIBLE_DEVICES=0 ./trainer linear")

    done = run([*words, "--steps", "2"], cwd=checkout, env={"PJRT_PLUGIN": str(pjrt_plugin)})

    header = Trained.read(done).header
    evidence.ran_on(header["platform"], [header["device"]])
    assert header["device"] == gpu.uuid


@pytest.mark.spec("fast.pin-literal", role="canary")
def test_the_literal_index_would_put_two_workers_on_one_card(
    gpu: Gpu, gpus: tuple[Gpu, ...], cuda_view: Callable[..., CudaView]
) -> None:
    shared = next(index for index, card in enumerate(gpus) if card.uuid != gpu.uuid)

    with pytest.raises(PinError, match=f"was pinned to \\['{gpu.uuid}'\\]"):
        cuda_view(mask=gpus[shared].uuid, expected=[gpu.uuid])


# > Leave none unpinned: XLA makes an allocator for every card that it sees.
@pytest.mark.spec("multi.two-xla")
def test_the_card_is_leased_to_this_run(gpu: Gpu, leases: Path, controller: int, evidence: Evidence) -> None:
    (obstacle,) = obstacles([gpu.uuid], folder=leases)

    evidence.measure(**{f"leased_{gpu.uuid[:12]}": obstacle.why})
    assert re.search(rf"\bpid {controller}\b", obstacle.why)


@pytest.mark.spec("multi.two-xla", role="canary")
def test_another_run_would_be_refused(gpu: Gpu, leases: Path, evidence: Evidence) -> None:
    evidence.act()

    with pytest.raises(LeaseError, match=rf"{gpu.uuid} is leased by pid \d+"):
        acquire([gpu.uuid], folder=leases, wait=0.0)


def leave(path: Path, text: str) -> None:
    """Write a file that another worker sees whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
