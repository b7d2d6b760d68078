"""Say whether two lowerers and the oracle agree, and if not, who is off and where. Pure: arrays in, facts out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from pytest_cudaboot.errors import BoxError, NumericError
from pytest_cudaboot.rules.numerics import Comparison, compare, movement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_cudaboot.model import Json
    from pytest_cudaboot.rules.numerics import Array, Arrays
    from pytest_cudaboot.rules.tolerances import Tolerance

BOTH = "both"
MARKER = "pjrt_ffi_marker"
_PLUGIN = re.compile(r"pjrt|xla")
_ARGUMENT = re.compile(r"%([\w.$-]+)\s*:\s*tensor")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One value of one output, as everybody has it.

    :param tensor: the output's name: of the input that it updates, or `output N`.
    """

    tensor: str
    index: tuple[int, ...]
    xla: float
    iree: float
    oracle: float

    def __str__(self) -> str:
        where = f"{self.tensor}{list(self.index)}" if self.index else self.tensor
        return f"{where} is {self.xla:.9g} by xla, {self.iree:.9g} by iree, {self.oracle:.9g} by the oracle"


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Each lowerer against the oracle, and one against the other.

    :param worst: where those who are off are furthest off; where nobody is, where the two differ most.
    """

    xla: Comparison
    iree: Comparison
    pair: Comparison
    worst: Place

    @property
    def off(self) -> str | None:
        """`xla`, `iree` or `both`; None if all three agree.

        Two that are far from each other, and neither from the oracle, share the blame.
        """
        guilty = [name for name, made in (("xla", self.xla), ("iree", self.iree)) if made.problems()]
        if len(guilty) == 1:
            return guilty[0]
        return BOTH if guilty or self.pair.problems() else None

    def require(self) -> Agreement:
        """The agreement itself, if it is one.

        :raises NumericError: it is none; the message says who is off, tensor, index, values and tolerance.
        """
        if self.off is not None:
            bound = self.xla.tolerance
            peak = "" if bound.peak is None else f", peak {bound.peak:g}"
            allowed = f"median {bound.median:g}, p90 {bound.p90:g}{peak}"
            where = f"family {bound.family!r} on {bound.device!r} allows {allowed}"
            raise NumericError(f"{self.off} off: {self.worst}; {where}; {self._words()}")
        return self

    def to_json(self) -> Json:
        """What goes into the cell's evidence."""
        return {
            "off": self.off,
            "worst": str(self.worst),
            "errors": {
                name: {"median": made.median, "p90": made.p90}
                for name, made in (("xla", self.xla), ("iree", self.iree), ("pair", self.pair))
            },
        }

    def _words(self) -> str:
        made = {"xla": self.xla, "iree": self.iree, "xla against iree": self.pair}
        return "; ".join(f"{name}: {made[name].problems()[0]}" for name in made if made[name].problems())


def judge_agreement(
    xla: Arrays,
    iree: Arrays,
    oracle: Arrays,
    *,
    tolerance: Tolerance,
    inputs: Arrays = (),
    updates: Mapping[int, int] | None = None,
    names: Sequence[str] = (),
) -> Agreement:
    """Compare what two lowerers made of the same inputs with each other and with the oracle.

    :param names: of the outputs, for the message.
    :raises NumericError: somebody's outputs have another number or other shapes, so nothing can be compared.
    """
    changed = updates or {}

    def against(who: str, got: Arrays, want: Arrays) -> Comparison:
        try:
            return compare(got, want, tolerance=tolerance, inputs=inputs, updates=changed)
        except NumericError as error:
            raise NumericError(f"{who}: {error}") from error

    to_oracle = {"xla": against("xla", xla, oracle), "iree": against("iree", iree, oracle)}
    pair = against("xla against iree", xla, iree)
    guilty = [name for name, made in to_oracle.items() if made.problems()]
    far = max((to_oracle[name] for name in guilty), key=lambda made: made.worst.error, default=pair)
    index = max(far.outputs, key=lambda output: (output.peak, output.error)).index
    got = xla if far is not to_oracle["iree"] else iree
    want = iree if far is pair else oracle
    before = inputs[changed[index]] if index in changed else None
    worst = _place(
        names[index] if index < len(names) else f"output {index}",
        _furthest(got[index], want[index], before),
        (xla[index], iree[index], oracle[index]),
    )
    return Agreement(xla=to_oracle["xla"], iree=to_oracle["iree"], pair=pair, worst=worst)


def _place(tensor: str, at: tuple[int, ...], said: tuple[Array, Array, Array]) -> Place:
    """A place in a tensor, and what XLA, IREE and the oracle have there."""
    xla, iree, oracle = (float(array[at]) for array in said)
    return Place(tensor=tensor, index=at, xla=xla, iree=iree, oracle=oracle)


def output_names(text: str, updates: Mapping[int, int], outputs: int) -> tuple[str, ...]:
    """What to call each output of an artifact: as the argument that it updates is called in the text."""
    arguments = _ARGUMENT.findall(text.partition("->")[0])
    return tuple(
        arguments[updates[index]]
        if index in updates and updates[index] < len(arguments)
        else f"output {index}"
        for index in range(outputs)
    )


def require_two(xla: Json, iree: Json) -> None:
    """Refuse an agreement of XLA with itself: each process has to be what it is called, by its own facts.

    :raises BoxError: one is not.
    """
    for name, facts in (("xla", xla), ("iree", iree)):
        found = _identity(facts)
        if found != name:
            raise BoxError(f"what was opened as {name} is {found} ({facts.get('shim') or 'no shim'})")


def _identity(facts: Json) -> str:
    """By the shim's marker; one that has none is known by the plugin that it has loaded."""
    mapped = facts.get("mapped") or {}
    shim = PurePath(facts.get("shim") or "").name
    if MARKER in (facts.get("extras") or ()) or any(_PLUGIN.search(name) for name in mapped if name != shim):
        return "xla"
    return (
        "iree"
        if any("iree" in path for paths in mapped.values() for path in paths)
        else "neither xla nor iree"
    )


def _furthest(got: Array, want: Array, before: Array | None) -> tuple[int, ...]:
    """Where two arrays are furthest apart; what is finite in only one of them is further than anything."""
    a, b = movement(got, before), movement(want, before)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    apart = np.where(np.isnan(apart), np.where(np.isnan(a) & np.isnan(b), 0.0, np.inf), apart)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape))
