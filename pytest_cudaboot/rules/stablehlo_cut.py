"""Cut an artifact by its values: a module of some of its operations, whose inputs and outputs are values of the whole.

A cut keeps an artifact's rules: one function, float32 at the signature. Values of another type cross as float32, and are
converted on both sides. Pure: text in, text out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import SignatureError
from pytest_cudaboot.rules.signature import TensorType
from pytest_cudaboot.rules.stablehlo_text import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_cudaboot.rules.stablehlo_text import Function, Operation

# What float32 carries without loss; a value of another type is never asked for.
CARRIED = ("f32", "f16", "bf16", "i1", "i8", "ui8", "i16", "ui16", "i32")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A module that was cut out of an artifact.

    :param inputs: the values of the whole that it is given, in its order; `outputs` are those that it returns.
    :param operations: of the whole, that are in it.
    """

    entry: str
    text: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]


def carried(function: Function) -> set[str]:
    """The values that can be given to a cut, or be returned by one."""
    return {name for name, kind in function.types.items() if kind.dtype in CARRIED}


def cut(function: Function, wanted: Sequence[str], *, given: Collection[str] = (), entry: str = "cut") -> Cut:
    """A module that makes some values of a function.

    :param wanted: the values that it returns.
    :param given: values that it is given rather than makes; arguments it is always given.
    :raises SignatureError: a value's type could not be read.
    """
    inside = back(function, wanted, given)
    makes = {name for op in inside for name in op.results}
    used = {name for op in inside for name in op.operands} | set(wanted)
    inputs = tuple(name for name in _all_values(function) if name in used and name not in makes)
    text = _Printer(function, entry).module(inputs, inside, tuple(wanted))
    return Cut(entry=entry, text=text, inputs=inputs, outputs=tuple(wanted), operations=inside)


def back(function: Function, wanted: Sequence[str], given: Collection[str] = ()) -> tuple[Operation, ...]:
    """The operations that some values need, without those that what is given needs."""
    needed, kept = set(wanted) - set(given), []
    for op in reversed(function.operations):
        if needed.intersection(op.results):
            kept.append(op)
            needed.update(name for name in op.operands if name not in given)
    return tuple(reversed(kept))


def around(function: Function, value: str, depth: int, known: Collection[str]) -> set[str]:
    """What to give to a cut that reaches `depth` operations back from a value: 1 is its operation alone.

    :param known: what can be given. Constants never are, so that they stay in the text.
    """
    makers = function.makers()
    inside, edge = {value}, {value}
    for _ in range(depth):
        edge = {name for made in edge if made in makers for name in makers[made].operands} - inside
        inside |= edge
    constants = {name for name in edge if name in makers and makers[name].constant}
    beyond = edge - constants
    # A value that is reached on a shorter way too is inside already.
    return beyond & set(known)


def _all_values(function: Function) -> list[str]:
    return [*function.arguments, *(name for op in function.operations for name in op.results)]


class _Printer:
    """Prints a cut. One of several results has a name that no argument may have, so arguments are renamed there."""

    def __init__(self, function: Function, entry: str) -> None:
        self._types = function.types
        self._entry = entry

    def module(self, inputs: Sequence[str], inside: Sequence[Operation], wanted: Sequence[str]) -> str:
        names = {name: _argument(name) for name in inputs}
        crossing = {name: self._crossing(name) for name in (*inputs, *wanted)}
        arguments = ", ".join(f"{self._outside(name)}: {crossing[name]}" for name in inputs)
        lines = [
            f"{names[name]} = stablehlo.convert {self._outside(name)} : ({crossing[name]}) -> {self._types[name]}"
            for name in inputs
            if self._types[name].dtype != "f32"
        ]
        lines += [REFERENCE.sub(lambda match: names.get(match[0], match[0]), op.text) for op in inside]
        returned = []
        for place, name in enumerate(wanted):
            local = names.get(name, name)
            if self._types[name].dtype != "f32":
                lines.append(
                    f"%out_{place} = stablehlo.convert {local} : ({self._types[name]}) -> {crossing[name]}"
                )
                local = f"%out_{place}"
            returned.append(local)
        types = ", ".join(str(crossing[name]) for name in wanted)
        results = types if len(wanted) == 1 else f"({types})"
        body = "\n".join(f"    {line}" for line in [*lines, f"return {', '.join(returned)} : {types}"])
        return f"module @m {{\n  func.func @{self._entry}({arguments}) -> {results} {{\n{body}\n  }}\n}}\n"

    def _outside(self, name: str) -> str:
        return _argument(name) if self._types[name].dtype == "f32" else f"%in_{_argument(name)[1:]}"

    def _crossing(self, name: str) -> TensorType:
        if name not in self._types:
            raise SignatureError(f"the type of {name} could not be read, so nothing can be cut there")
        return TensorType(self._types[name].shape, "f32")


def _argument(name: str) -> str:
    """A name that begins with a digit has nothing but digits."""
    return f"%part_{name[1:].replace('#', '_')}" if "#" in name else name
