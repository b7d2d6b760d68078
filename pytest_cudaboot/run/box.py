"""Which cards a run gets: NVML's word, held against the bus, read inside the caller's mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cudaboot.errors import BoxError, SelectionError
from pytest_cudaboot.model import Gpu, Json
from pytest_cudaboot.probes import nvml, pci
from pytest_cudaboot.rules.selection import select


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """The cards chosen and what is known of the box.

    :param cuda: CUDA version that the driver supports, 13000 for 13.0; null without a driver.
    :param problem: how the box contradicts itself, or null; then there are no cards to trust.
    """

    gpus: tuple[Gpu, ...] = ()
    cuda: int | None = None
    facts: Json
    problem: str | None = None


def choose(wanted: str, environ: Mapping[str, str], root: Path = Path("/")) -> Box:
    """The box for `--gpus WANTED`.

    :raises SelectionError: if the user asked for what there is not.
    """
    if wanted == "none":
        select(wanted, (), mask=None, hardware=False)
        return Box(facts={"cards": "not asked for"})
    on_bus = pci.cards(root)
    try:
        view = nvml.look()
        _agree(view, on_bus)
        gpus = _select(wanted, environ.get("CUDA_VISIBLE_DEVICES"), view, hardware=bool(on_bus))
    except BoxError as error:
        return Box(facts={"bus": [card.address for card in on_bus]}, problem=str(error))
    facts = {**_facts(view, on_bus), "container": pci.in_container(root)}
    return Box(gpus=gpus, cuda=view.cuda, facts=facts)


def _select(wanted: str, mask: str | None, view: nvml.NvmlView, *, hardware: bool) -> tuple[Gpu, ...]:
    try:
        gpus = select(wanted, view.gpus, mask=mask, hardware=hardware)
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
    if missing:
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
