"""What a run has to answer for: specs in and out of scope, and the cells that are planned. Pure; it probes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.model import CellKey
from pytest_cudaboot.rules.spec import CONDITIONS, OPT_IN, Spec, cards_wanted, is_condition, needed_slots

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_cudaboot.rules.catalog import Catalog

NO_CARD = "no card was asked for"
_VIA = " (needs "


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The catalogue, divided. Every spec stands in exactly one of `scope_in` and `scope_out`.

    :param scope_out: pairs (spec, reason).
    :param partly: (spec, lowerer, reason): the spec is in scope, but not for this lowerer, though it was chosen.
    :param unmet: (condition, reason): required, and not met; its specs stay in scope.
    """

    scope_in: tuple[str, ...]
    scope_out: tuple[tuple[str, str], ...]
    partly: tuple[tuple[str, str, str], ...] = ()
    unmet: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """The question as it was put."""

    conditions: Mapping[str, str | None]
    gpus: int
    lowerers: Sequence[str]
    require: Collection[str]

    def unmet(self, condition: str) -> str | None:
        """Why a condition is not met, whether it was required or not."""
        wanted = cards_wanted(condition)
        if wanted is not None and 0 < self.gpus < wanted:
            return f"{wanted} cards are needed and {self.gpus} asked for"
        if wanted is not None or (condition == "gpu" and condition not in self.conditions):
            return None if self.gpus else NO_CARD
        if condition in OPT_IN and condition not in self.require:
            return f"{condition} was not asked for"
        return self.conditions.get(
            condition, None if condition in OPT_IN else f"{condition} was not looked for"
        )

    def excuse(self, condition: str) -> str | None:
        """Why a condition takes its specs out of scope; a required one never does."""
        return None if condition in self.require else self.unmet(condition)

    def excuse_device(self, slot: str | None) -> str | None:
        """`device` may be answered for one lowerer, as `device:iree`."""
        own = f"device:{slot}"
        return self.excuse(own if own in self.conditions and "device" not in self.require else "device")


def decide_scope(
    catalog: Catalog,
    *,
    conditions: Mapping[str, str | None],
    gpus: int,
    lowerers: Sequence[str],
    require: Collection[str],
) -> Scope:
    """Divide the catalogue.

    :param conditions: condition name to None where it is met, else to the reason why not. `device` is one that
        every spec with `on` other than `host` has by itself.
    :param gpus: how many cards were asked for; it answers `gpus:N`, and `gpu` unless `conditions` does.
    :param require: conditions that keep their specs in scope even if they are not met.
    """
    for name in require:
        if not is_condition(name) and name != "device":
            raise UsageError(
                f"unknown condition {name!r} is required; known: {', '.join(CONDITIONS)}, gpus:N, device"
            )
    asked = _Asked(conditions=conditions, gpus=gpus, lowerers=lowerers, require=require)
    slots = _excuses(catalog, asked)
    out = {spec.id: _whole(spec, slots, lowerers) for spec in catalog.specs.values()}
    return Scope(
        scope_in=tuple(ident for ident, reason in out.items() if reason is None),
        scope_out=tuple((ident, reason) for ident, reason in out.items() if reason is not None),
        partly=tuple(
            (ident, slot, reason)
            for ident, why in out.items()
            for slot in catalog.specs[ident].slots
            if why is None and slot in lowerers and slot is not None and (reason := slots[ident, slot])
        ),
        unmet=tuple((name, reason) for name in dict.fromkeys(require) if (reason := asked.unmet(name))),
    )


def _excuses(catalog: Catalog, asked: _Asked) -> dict[tuple[str, str | None], str | None]:
    """For each spec and lowerer, why it is out of scope; prerequisites first."""
    found: dict[tuple[str, str | None], str | None] = {}
    order = TopologicalSorter({spec.id: spec.needs for spec in catalog.specs.values()}).static_order()
    for spec in (catalog.specs[ident] for ident in order):
        for slot in spec.slots:
            found[spec.id, slot] = _own(spec, slot, asked) or _inherited(spec, slot, catalog, found)
    return found


def _own(spec: Spec, slot: str | None, asked: _Asked) -> str | None:
    if spec.uncheckable:
        return "uncheckable"
    wanted = (slot,) if slot is not None else spec.lowerers if spec.pair else ()
    for name in wanted:
        if name not in asked.lowerers:
            return f"lowerer {name} is not in scope"
    for condition in spec.when:
        if reason := asked.excuse(condition):
            return reason
    if spec.on == "host":
        return None
    return next((reason for name in wanted or (None,) if (reason := asked.excuse_device(name))), None)


def _inherited(
    spec: Spec,
    slot: str | None,
    catalog: Catalog,
    found: Mapping[tuple[str, str | None], str | None],
) -> str | None:
    """A pair needs every cell of its prerequisite; what has no lowerer goes on while one is left."""
    for need in spec.needs:
        reasons = [found[need, name] for name in needed_slots(spec, slot, catalog.specs[need])]
        gone = [reason for reason in reasons if reason is not None]
        if gone and (spec.pair or len(gone) == len(reasons)):
            return f"{root_reason(gone[0])}{_VIA}{need})"
    return None


def root_reason(reason: str) -> str:
    """A reason for being out of scope without the prerequisite that it came through."""
    return reason.partition(_VIA)[0]


def _whole(
    spec: Spec, slots: Mapping[tuple[str, str | None], str | None], lowerers: Sequence[str]
) -> str | None:
    """Why a spec is out for all its lowerers; the reason of a chosen lowerer says more than that one was not."""
    reasons = {slot: slots[spec.id, slot] for slot in spec.slots}
    if None in reasons.values():
        return None
    chosen = [reason for slot, reason in reasons.items() if slot in lowerers]
    return next(iter(chosen or reasons.values()))


def plan(
    catalog: Catalog, scope: Scope, *, lowerers: Sequence[str], gpus: Sequence[str]
) -> tuple[CellKey, ...]:
    """The cells of a scope, in the catalogue's order.

    :param gpus: UUIDs of the cards asked for; without any, a spec on each card has one cell, on the CPU.
    """
    inside = set(scope.scope_in)
    gone = {(spec, lowerer) for spec, lowerer, _ in scope.partly}
    cards: tuple[str | None, ...] = tuple(gpus) or (None,)
    return tuple(
        CellKey(spec.id, slot, gpu)
        for spec in catalog.specs.values()
        if spec.id in inside
        for slot in spec.slots
        if slot is None or (slot in lowerers and (spec.id, slot) not in gone)
        for gpu in (cards if spec.on == "each" else (None,))
    )
