"""Which cards a run gets: NVML's word, held against the bus, read inside the caller's mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import devnull
from pathlib import Path

from pytest_cudaboot.errors import BoxError, CudabootError, SelectionError
from pytest_cudaboot.model import Gpu, Json
from pytest_cudaboot.probes import nvml, pci
from pytest_cudaboot.rules.selection import select

MASK = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"
ASKING_BUDGET = 60.0  # seconds; a driver that has to bring up eight cards first takes its time


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """The cards chosen and what is known of the box.

    :param cuda: CUDA version that the driver supports, 13000 for 13.0; null without a driver.
    :param problem: how the box contradicts itself, or null; then there are no cards to trust.
    :param simulated: whether NVML's library is a stand-in; then the bus is one as well.
    """

    gpus: tuple[Gpu, ...] = ()
    cuda: int | None = None
    facts: Json
    problem: str | None = None
    simulated: bool = False

    @property
    def platform(self) -> str:
        """What a run of it executes on."""
        return "cuda" if self.gpus else "cpu"


def choose(wanted: str, environ: Mapping[str, str], root: Path = Path("/")) -> Box:
    """The box for `--gpus WANTED`.

    :raises SelectionError: if the user asked for what there is not.
    """
    if wanted == "none":
        select(wanted, (), mask=None, hardware=False)
        return Box(facts={"cards": "not asked for"})
    try:
        simulated = nvml.simulated_root()
    except BoxError as error:
        return Box(facts={}, problem=str(error), simulated=True)
    box = _choose(wanted, environ, simulated or root)
    return replace(box, simulated=simulated is not None)


def _choose(wanted: str, environ: Mapping[str, str], root: Path) -> Box:
    on_bus = pci.cards(root)
    try:
        view = nvml.look()
        _agree(view, on_bus)
        order = _cuda_order(view.gpus, environ)
        gpus = _select(wanted, environ.get(MASK), view, order, hardware=bool(on_bus))
    except BoxError as error:
        return Box(facts={"bus": [card.address for card in on_bus]}, problem=str(error))
    facts = {**_facts(view, on_bus), **_numbering(view.gpus, order), "container": pci.in_container(root)}
    return Box(gpus=gpus, cuda=view.cuda, facts=facts)


def _cuda_order(gpus: tuple[Gpu, ...], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The cards as CUDA numbers them: the fastest first, unless told otherwise, and it alone knows which those are.

    It is asked only where that can be another way than NVML's and counts: for cards of several kinds, unless the
    mask has UUIDs alone.
    """
    alike = len({gpu.name for gpu in gpus}) <= 1
    counted = any(entry.strip().isdigit() for entry in environ.get(MASK, "0").split(","))
    if alike or not counted or environ.get(ORDER) == BY_BUS:
        return gpus
    from pytest_cudaboot.device.client import DeviceProcess  # brings NumPy, which hardly any run needs here

    unmasked = {name: value for name, value in environ.items() if name != MASK}
    try:
        with DeviceProcess(env=unmasked, log_path=Path(devnull)) as process:
            uuids = process.call("prove", budget=ASKING_BUDGET)
    except CudabootError as error:
        raise BoxError(
            f"CUDA does not tell how it numbers the cards: {error}; with {ORDER}={BY_BUS} it is NVML's way"
        ) from error
    return tuple(sorted(gpus, key=lambda gpu: uuids.index(gpu.uuid) if gpu.uuid in uuids else len(uuids)))


def _numbering(gpus: tuple[Gpu, ...], order: tuple[Gpu, ...]) -> Json:
    """CUDA's own numbers, where they are others than NVML's."""
    return {} if order == gpus else {"cuda_order": [f"{place}={gpu.uuid}" for place, gpu in enumerate(order)]}


def _select(
    wanted: str, mask: str | None, view: nvml.NvmlView, order: tuple[Gpu, ...], *, hardware: bool
) -> tuple[Gpu, ...]:
    try:
        gpus = select(wanted, view.gpus, mask=mask, hardware=hardware, order=order)
    except SelectionError as error:
        if view.absence is None:
            raise
        # "this machine offers: none" helps nobody who does not know why.
        raise SelectionError(f"{error} (NVML says: {view.absence})") from None
    _refuse_mig(gpus, view)
    return gpus


def _agree(view: nvml.NvmlView, on_bus: tuple[pci.PciCard, ...]) -> None:
    """A card that the bus has and NVML does not name is a broken box, never "no card"."""
    named = {pci.normalized(gpu.pci) for gpu in view.gpus}
    missing = [card.address for card in on_bus if card.address not in named]
    # A control group's limits hide cards from NVML, which counts them still, and not from the bus.
    if len(missing) > view.denied:
        why = f"; NVML says: {view.absence}" if view.absence else ""
        raise BoxError(
            f"NVML does not name {len(missing)} NVIDIA card(s) that the PCI bus has: {', '.join(missing)}{why}"
        )


def _refuse_mig(gpus: tuple[Gpu, ...], view: nvml.NvmlView) -> None:
    split = [gpu.uuid for gpu in gpus if gpu.uuid in view.mig]
    if split:
        raise SelectionError(f"{', '.join(split)} is in MIG mode; only whole cards can be gated")


def _facts(view: nvml.NvmlView, on_bus: tuple[pci.PciCard, ...]) -> Json:
    return {
        "driver": view.driver,
        "cuda": view.cuda,
        "cards": [f"{gpu.index}={gpu.uuid} {gpu.name} {gpu.pci}" for gpu in view.gpus],
        "bus": [card.address for card in on_bus],
    }
