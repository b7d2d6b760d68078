"""What one spec of the catalogue is, and how its table is read; the graph between specs is `catalog`'s business."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.model import CellKey
from pytest_cudaboot.rules.tables import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KINDS = ("step", "gotcha", "claim", "consistency")
TRACKS = ("toolchain", "box", "document", "proofs")
PLACES = ("host", "any", "each")
LOWERERS = ("xla", "iree")
CANARIES = ("upstream", "guard")
ROLES = ("check", "canary", "control")
OPT_IN = ("net", "long", "exclusive")
CONDITIONS = (
    "gpu",
    "cuda-plugin",
    "cpu-plugin",
    "compiler",
    "iree-compile",
    "git",
    "lean",
    "iree-build",
    "iree-tree",
    *(
        "document",
        "shim",
        "header",
        "trainer",
        "oracle",
        "renderer",
        "graphs",
        "artifacts",
        "describe",
        "settings",
        "iree-pin",
    ),
    *OPT_IN,
)
KEYS = (
    *("kind", "title", "heading", "track", "needs", "when", "on", "lowerers", "pair", "gate", "budget"),
    *("canary", "upstream", "may", "uncheckable", "flaky", "flaky_reason"),
)
_CARDS = re.compile(r"gpus:([1-9][0-9]*)")
_FOREIGN = re.compile(r"[a-z][\w-]*\.[\w.-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """One checkable statement of the document; the fields are the keys of its table in the catalogue.

    :param flaky: the share of its runs that may fail and hold when they are run again, for `flaky_reason`.
    """

    id: str
    kind: str
    title: str
    heading: str
    track: str = "toolchain"
    needs: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    on: str = "host"
    lowerers: tuple[str, ...] = ()
    pair: bool = False
    gate: bool = True
    budget: float = 120.0
    canary: str | None = None
    upstream: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    uncheckable: bool = False
    flaky: float | None = None
    flaky_reason: str | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that each of its cells must have a test for."""
        if self.kind != "gotcha":
            return ("check",)
        return ROLES if self.canary == "upstream" else ("check", "canary")

    @property
    def slots(self) -> tuple[str | None, ...]:
        """The lowerers that its cells are planned for; `None` where one cell speaks for all."""
        return (None,) if self.pair or not self.lowerers else self.lowerers

    @property
    def cards(self) -> int:
        """How many cards a test of it takes at once: `gpus:N` is a gang where it may execute anywhere.

        On the host it is a condition of the run only, and so it is where each card has a cell.
        """
        wanted = [count for name in self.when if (count := cards_wanted(name))]
        return max(wanted, default=1) if self.on == "any" else 1

    def key(self, lowerer: str | None, gpu: str | None) -> CellKey:
        """The cell that a test of this spec speaks for, whatever else its parameters are.

        A spec of one lowerer needs no parameter to say which; only a spec on each card is bound to one.
        """
        slots = self.slots
        slot = slots[0] if len(slots) == 1 else lowerer
        return CellKey(self.id, slot, gpu if self.on == "each" else None)


def cards_wanted(condition: str) -> int | None:
    """The N of `gpus:N`, or None for every other condition."""
    match = _CARDS.fullmatch(condition)
    return int(match[1]) if match else None


def is_condition(name: str) -> bool:
    """Whether a spec may be put under this condition."""
    return name in CONDITIONS or cards_wanted(name) is not None or is_foreign_condition(name)


def is_foreign_condition(name: str) -> bool:
    """Whether a condition is of another package's own: `package.name`."""
    return _FOREIGN.fullmatch(name) is not None


def parse_spec(
    ident: str, data: Mapping[str, object], where: str, lowerers: Collection[str] | None = LOWERERS
) -> Spec:
    """One table as a spec, or a `CatalogError` that names the table and the key.

    :param lowerers: those that there are; None where nobody can know them, so that any name will do.
    """
    table = Table(where, data, KEYS)
    kind = table.choice("kind", KINDS)
    spec = Spec(
        id=ident,
        kind=kind,
        title=table.text("title"),
        heading=table.text("heading"),
        track=table.choice("track", TRACKS) if table.has("track") else "toolchain",
        needs=table.texts("needs"),
        when=table.texts("when"),
        on=table.choice("on", PLACES) if table.has("on") else "host",
        lowerers=table.texts("lowerers", lowerers),
        pair=table.flag("pair", default=False),
        gate=table.flag("gate", default=kind != "claim"),
        budget=table.seconds("budget", 120.0),
        canary=table.choice("canary", CANARIES) if table.has("canary") else None,
        upstream=table.texts("upstream"),
        may=table.texts("may", ("unsupported",)),
        uncheckable=table.flag("uncheckable", default=False),
        flaky=table.share("flaky") if table.has("flaky") else None,
        flaky_reason=table.text("flaky_reason") if table.has("flaky_reason") else None,
    )
    _check(spec, table)
    return spec


def _check(spec: Spec, table: Table) -> None:
    for condition in spec.when:
        if not is_condition(condition):
            table.fail("when", f"{condition!r} is not one of {', '.join(CONDITIONS)}, gpus:N")
    if spec.kind == "gotcha" and spec.canary is None:
        table.fail("canary", f"a gotcha needs one of {', '.join(CANARIES)}")
    if spec.kind != "gotcha" and spec.canary is not None:
        table.fail("canary", f"only a gotcha has a canary, and this is a {spec.kind}")
    if (spec.flaky is None) != (spec.flaky_reason is None):
        table.fail("flaky", "a rate at which it may fail needs its `flaky_reason`, and a reason its rate")
    if spec.flaky is not None and spec.on == "host":
        table.fail("flaky", "what runs on the host is not run again, so it can not be told that it is flaky")
    if spec.kind == "claim" and spec.gate:
        table.fail("gate", "a claim never decides; leave the key out")
    if spec.pair and len(spec.lowerers) < len(LOWERERS):
        table.fail("pair", f"a pair needs at least two lowerers, and has {list(spec.lowerers)!r}")


def needed_slots(spec: Spec, slot: str | None, need: Spec) -> tuple[str | None, ...]:
    """The lowerers of a prerequisite whose cells count for one lowerer of its dependent.

    The same lowerer counts; a prerequisite without one counts for all; a dependent without one (or a pair)
    waits for all of them. Two specs that share no lowerer can only be meant as a whole.
    """
    mine = set(spec.lowerers or need.lowerers)
    if need.slots == (None,) or mine.isdisjoint(need.lowerers):
        return need.slots
    if slot is None:
        return tuple(name for name in need.slots if name in mine)
    return (slot,) if slot in need.slots else ()
