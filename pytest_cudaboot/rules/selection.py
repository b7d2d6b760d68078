"""The `--gpus` grammar and what a pinned process may see. Pure: cards and mask come in, cards go out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import BoxError, SelectionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_cudaboot.model import Gpu

_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_RANGE = re.compile(r"(0|[1-9][0-9]*)-(0|[1-9][0-9]*)", re.ASCII)
_UUID = re.compile(r"GPU-.+")
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)
_WORDS = ("none", "auto", "all")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INDICES = re.compile(r"[0-9]+(,[0-9]+)*", re.ASCII)
GRAMMAR = "none, auto, all, or a list of index, A-B, UUID (GPU-...) or PCI bus id"
# They would give a spec another program than it asks for: another compiler, shim, plugin, or number of devices.
_DROPPED = frozenset(
    {
        "XLA_FLAGS",
        "TF_XLA_FLAGS",
        "XLA_CLIENT_MEM_FRACTION",
        "LEAN_MLIR_LOWERER",
        "LEAN_MLIR_LOWERER_SO",
        "PJRT_PLUGIN",
        "PJRT_REPLICAS",
        "PJRT_FFI_RESIDENT",
        "CUDABOOT_CPU_DEVICES",
    }
)
_DROPPED_PREFIX = "XLA_PYTHON_CLIENT_"
# They are a part of the box, or the user's word on how much memory there is to be had.
_KEPT = frozenset(
    {
        "LEAN_MLIR_MEM_FRACTION",
        "LEAN_MLIR_PREALLOCATE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NVIDIA_TF32_OVERRIDE",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Box:
    """All cards of the machine, and those that the caller's mask leaves, in the mask's order."""

    cards: tuple[Gpu, ...]
    visible: tuple[Gpu, ...]
    mask: str | None

    def at(self, position: str) -> Gpu | None:
        """The card of an index: a position inside a mask, NVML's index without one."""
        if self.mask is not None:
            return self.visible[int(position)] if int(position) < len(self.visible) else None
        return next((gpu for gpu in self.cards if gpu.index == int(position)), None)

    def offer(self) -> str:
        """What could have been asked for, in words that end a message."""
        if self.mask is None:
            names = ", ".join(f"{gpu.index}={gpu.uuid} ({gpu.name})" for gpu in self.cards)
            return f"this machine offers: {names or 'none'}"
        names = ", ".join(f"{place}={gpu.uuid} ({gpu.name})" for place, gpu in enumerate(self.visible))
        return f"CUDA_VISIBLE_DEVICES={self.mask!r} leaves: {names or 'none'}"

    def miss(self, token: str) -> SelectionError:
        """The refusal of a name that no visible card has."""
        if self.mask is not None and _INDEX.fullmatch(token):
            hidden = any(gpu.index == int(token) for gpu in self.cards if gpu not in self.visible)
            aside = f" (NVML's GPU {token} is masked out)" if hidden else ""
            return SelectionError(f"no GPU {token!r} inside the mask{aside}; {self.offer()}")
        if any(_names(gpu, token) for gpu in self.cards if gpu not in self.visible):
            return SelectionError(f"GPU {token!r} is masked out; {self.offer()}")
        return SelectionError(f"no GPU {token!r}; {self.offer()}")


def select(
    wanted: str,
    cards: Sequence[Gpu],
    *,
    mask: str | None,
    hardware: bool,
    order: Sequence[Gpu] | None = None,
) -> tuple[Gpu, ...]:
    """The cards that `--gpus` names.

    :param cards: what NVML names, by index.
    :param mask: the caller's `CUDA_VISIBLE_DEVICES`, or None where it is not set.
    :param order: the cards as CUDA numbers them, which is what an index of a mask means; None if it is as NVML does.
    :param hardware: whether the bus has NVIDIA cards at all, whatever NVML says.
    :raises SelectionError: for a card that is absent, masked out, named twice, or not a whole card.
    :raises BoxError: if the bus has cards and NVML names none.
    """
    _refuse_form(wanted)
    if wanted == "none" or (wanted == "auto" and not cards and not hardware):
        return ()
    if hardware and not cards:
        raise BoxError(f"--gpus={wanted}: the PCI bus has NVIDIA cards, and NVML names none of them")
    box = _Box(cards=tuple(cards), visible=_visible(cards if order is None else order, mask), mask=mask)
    if wanted in _WORDS:
        if not box.visible:
            raise SelectionError(f"--gpus={wanted} finds no GPU; {box.offer()}")
        return box.visible
    chosen = [gpu for token in wanted.split(",") for gpu in _find(token, box)]
    for place, gpu in enumerate(chosen):
        if gpu in chosen[:place]:
            raise SelectionError(f"--gpus={wanted} names {gpu.uuid} twice")
    return tuple(chosen)


def _refuse_form(wanted: str) -> None:
    """What is wrong whatever cards there are."""
    if not wanted:
        raise SelectionError(f"--gpus is empty; write {GRAMMAR}")
    if wanted in _WORDS:
        return
    for token in wanted.split(","):
        if not token:
            raise SelectionError(f"--gpus={wanted!r} has an empty entry; write {GRAMMAR}")
        if token in _WORDS:
            raise SelectionError(f"--gpus={wanted!r}: {token!r} stands alone, not in a list")
        if token != token.strip():
            raise SelectionError(
                f"--gpus={wanted!r}: {token!r} has blanks around it; write {token.strip()!r}"
            )
        if token.upper().startswith("MIG"):
            raise SelectionError(
                f"--gpus={wanted!r}: {token!r} is a MIG instance; only whole cards can be gated"
            )
        if not any(form.fullmatch(token) for form in (_INDEX, _RANGE, _UUID, _PCI)):
            raise SelectionError(f"--gpus={wanted!r}: {token!r} names no GPU; write {GRAMMAR}")


def _find(token: str, box: _Box) -> tuple[Gpu, ...]:
    """The cards of one entry of the list."""
    if match := _RANGE.fullmatch(token):
        first, last = int(match[1]), int(match[2])
        if last < first:
            raise SelectionError(f"--gpus range {token!r} runs backwards; write '{last}-{first}'")
        # The first index without a card ends it, so that a huge range does not cost more than the box has.
        return tuple(_one(str(number), box) for number in range(first, last + 1))
    return (_one(token, box),)


def _one(token: str, box: _Box) -> Gpu:
    if _INDEX.fullmatch(token):
        found = box.at(token)
        if found is None:
            raise box.miss(token)
        return found
    hits = [gpu for gpu in box.visible if _names(gpu, token)]
    if len(hits) > 1:
        raise SelectionError(f"GPU {token!r} is the start of {len(hits)} UUIDs; {box.offer()}")
    if not hits:
        raise box.miss(token)
    return hits[0]


def _names(gpu: Gpu, token: str) -> bool:
    """Whether a UUID, the beginning of one, or a PCI bus id is this card's."""
    if _PCI.fullmatch(token):
        return _pci(token) == _pci(gpu.pci)
    return _UUID.fullmatch(token) is not None and gpu.uuid.startswith(token)


def _pci(text: str) -> tuple[int, ...] | None:
    """NVML writes the domain with eight digits, sysfs with four, people with none."""
    match = _PCI.fullmatch(text)
    return tuple(int(part or "0", 16) for part in match.groups()) if match else None


def _visible(cards: Sequence[Gpu], mask: str | None) -> tuple[Gpu, ...]:
    """The cards that CUDA would leave under a mask: nothing after the first invalid entry counts.

    :param cards: in CUDA's order; without a mask nobody counts in it, and NVML's is as good as any.
    """
    if mask is None:
        return tuple(sorted(cards, key=lambda gpu: gpu.index))
    found: list[Gpu] = []
    for entry in (part.strip() for part in mask.split(",")):
        if entry.startswith("MIG"):
            raise SelectionError(
                f"CUDA_VISIBLE_DEVICES={mask!r} names the MIG instance {entry!r}; only whole cards can be gated"
            )
        hits = _masked(cards, entry)
        if len(hits) != 1:
            break
        if hits[0] in found:
            raise SelectionError(f"CUDA_VISIBLE_DEVICES={mask!r} names {hits[0].uuid} twice")
        found += hits
    return tuple(found)


def _masked(cards: Sequence[Gpu], entry: str) -> list[Gpu]:
    if _INDEX.fullmatch(entry):
        return list(cards[int(entry) : int(entry) + 1])
    return [gpu for gpu in cards if _UUID.fullmatch(entry) and gpu.uuid.startswith(entry)]


def pin_environment(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> dict[str, str]:
    """The environment of a process that may see these cards only, or none at all.

    A card is named by UUID, since an index means another card in another order. Variables that would change
    the program under test behind a spec's back are dropped; a spec that wants one sets it again.
    """
    kept = {name: value for name, value in environ.items() if not _dropped(name)}
    return kept | {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def in_force(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that bear on what runs: `kept: VALUE`, or `dropped: VALUE` for what no pinned process gets."""
    said = {name: value for name, value in sorted(environ.items()) if value}
    return {
        name: f"{'dropped' if _dropped(name) else 'kept'}: {value}"
        for name, value in said.items()
        if _dropped(name) or name in _KEPT
    }


def _dropped(name: str) -> bool:
    return name in _DROPPED or name.startswith(_DROPPED_PREFIX)


def rebound(words: Sequence[str], gpus: Sequence[Gpu]) -> tuple[dict[str, str], tuple[str, ...]]:
    """A documented command's leading `NAME=VALUE` words, and the rest of it.

    The literal index in `CUDA_VISIBLE_DEVICES=0` means the worker's own card: taken as it is printed, the workers of
    all cards would share card 0. As many indices mean as many of the test's cards, as far as it has them.
    """
    count = next((place for place, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    pairs = dict(word.split("=", 1) for word in words[:count])
    mask = pairs.get("CUDA_VISIBLE_DEVICES", "")
    if _INDICES.fullmatch(mask):
        pairs["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus[: len(mask.split(","))])
    return pairs, tuple(words[count:])
