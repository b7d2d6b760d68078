"""Multi-GPU. BOOTSTRAP.md#multi-gpu"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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
from .conftest import WITHOUT_AUTOTUNING, Trained, Training
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


def pinned_to(card: Gpu, **variables: str) -> dict[str, str]:
    """The environment of a process that is to have this card alone."""
    return {"CUDA_VISIBLE_DEVICES": card.uuid, **variables}


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


# > each pinned by `CUDA_VISIBLE_DEVICES`, best to a UUID
@pytest.mark.spec("multi.one-per-card")
def test_cards_train_at_the_same_time_and_each_process_on_its_own_only(
    gpus: tuple[Gpu, ...],
    run: Runner,
    training: Callable[..., AbstractContextManager[Training]],
    evidence: Evidence,
) -> None:
    run(["true"])  # the warm device process leaves the card before its memory is looked at
    before = nvml.memory_of(card.uuid for card in nvml.look().gpus)
    with ExitStack() as stack:
        trainers = {card.uuid: stack.enter_context(training(pinned_to(card), log=card.uuid)) for card in gpus}
        headers = {uuid: trainer.header() for uuid, trainer in trainers.items()}
        prints = {uuid: Footprint(trainer.pid, before) for uuid, trainer in trainers.items()}
        used = {uuid: footprint.cards() for uuid, footprint in prints.items()}
        grown = prints[gpus[0].uuid].growth(trainers)

    for header in headers.values():
        evidence.ran_on(header["platform"], [header["device"]])
    evidence.measure(memory_on=used, grown_bytes=grown)
    assert {uuid: header["device"] for uuid, header in headers.items()} == {uuid: uuid for uuid in trainers}
    assert all(on is None or set(on) == {uuid} for uuid, on in used.items())
    assert all(bytes_ is None or bytes_ > CONTEXT for bytes_ in grown.values())


@pytest.mark.spec("multi.one-per-card")
def test_all_cards_learn_the_same(
    gpus: tuple[Gpu, ...], train: Callable[..., Trained], evidence: Evidence
) -> None:
    """Those of one kind; nothing is said of how two kinds of cards round."""
    trained = {
        card: train("linear", "--steps", "20", env=pinned_to(card, XLA_FLAGS=WITHOUT_AUTOTUNING))
        for card in gpus
    }

    evidence.measure(**{f"loss_on_{card.uuid[:12]}": made.losses[-1] for card, made in trained.items()})
    assert {card.uuid: made.header["device"] for card, made in trained.items()} == {
        card.uuid: card.uuid for card in gpus
    }
    for name in {card.name for card in gpus}:
        losses = {tuple(made.losses) for card, made in trained.items() if card.name == name}
        assert len(losses) == 1, f"cards of one kind, {name}, trained apart: {sorted(losses)}"


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
