"""Find the first operation of an artifact that a lowerer computes wrongly. It runs nothing itself: cuts go to a function.

Each operation is held against float64 from the *lowerer's own* values of its operands, so that what has been rounded
before it is not laid at its door. What is found is then tried alone. A fault that needs its neighbours (a fusion) does
not show there: then the cut grows backwards until it shows, and that one is reported.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_cudaboot.errors import NoReferenceError, NoTimeLeftError
from pytest_cudaboot.rules.first_bad_facts import FirstBad, Search, Trial, far_off, largest_error
from pytest_cudaboot.rules.stablehlo_cut import Cut, around, carried, cut
from pytest_cudaboot.rules.stablehlo_eval import evaluate, rounding_scale
from pytest_cudaboot.rules.stablehlo_words import computed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from pytest_cudaboot.rules.stablehlo_text import Function, Operation
    from pytest_cudaboot.rules.stablehlo_words import Values

    Float32 = NDArray[np.float32]
    Run = Callable[[Cut, Sequence[Float32]], Sequence[Float32]]

# How many values one cut returns, and their size in elements.
MOST_VALUES, MOST_ELEMENTS = 64, 2**26
# Of one operation, in the size in which its rounding is counted: float32 in any order, and products of ten bits (TF32).
ROUNDING, PRODUCTS = 5e-5, 3e-3
PRODUCTS_OF = ("dot_general", "dot", "convolution")
# Of several operations together, in units of the result's root mean square: rounding that adds up.
TOGETHER = {"cpu": 1e-3, "cuda": 5e-2}
TIE = 1e-5  # nearer than this, as a share of both, two values may compare either way


def find_first_bad(
    function: Function,
    inputs: Sequence[Float32],
    run: Run,
    *,
    lowerer: str,
    platform: str,
    peer: tuple[str, Run] | None = None,
) -> Search:
    """Where a lowerer is off first.

    :param run: runs a cut on the lowerer. `peer` is another one by name, a reference for what float64 is not computed of.
    :param platform: `cpu`, or `cuda`, whose products may be of ten bits.
    """
    finder = _Finder(function, inputs, run, lowerer=lowerer, platform=platform, peer=peer)
    try:
        bad, cut_short = finder.apart() or finder.hidden(), None
    except NoTimeLeftError as error:
        bad, cut_short = None, str(error)
    return Search(bad=bad, checked=finder.checked, without=tuple(finder.without), cut_short=cut_short)


class _Finder:
    """One search. `values` are the lowerer's own, as far as they are known."""

    def __init__(
        self,
        function: Function,
        inputs: Sequence[Float32],
        run: Run,
        *,
        lowerer: str,
        platform: str,
        peer: tuple[str, Run] | None,
    ) -> None:
        self.function, self.run, self.lowerer, self.platform = function, run, lowerer, platform
        self.peer = peer
        self.values: dict[str, Values] = dict(zip(function.arguments, inputs, strict=True))
        self.checked = 0
        self.without: list[str] = []
        self._types, self._carried, self._makers = function.types, carried(function), function.makers()

    # -- each operation by itself ------------------------------------------------------------------------------

    def apart(self) -> FirstBad | None:
        """All operations in order, some at a time; the values of those before are given to the next."""
        for group in self._groups():
            wanted = [name for op in group for name in op.results]
            trial = self._try(wanted, self._known, f"values_{group[0].index}")
            self.values.update(
                (name, self._typed(name, array)) for name, array in zip(wanted, trial.outputs, strict=True)
            )
            for op in group:
                if found := self._check(op, trial):
                    return found
        return None

    def _groups(self) -> Iterable[list[Operation]]:
        group: list[Operation]
        group, elements = [], 0
        for op in self.function.operations:
            if not op.types or any(name not in self._carried for name in op.results):
                continue
            size = sum(math.prod(kind.shape) for kind in op.types)
            if group and (len(group) == MOST_VALUES or elements + size > MOST_ELEMENTS):
                yield group
                group, elements = [], 0
            group.append(op)
            elements += size
        if group:
            yield group

    def _check(self, op: Operation, trial: Trial) -> FirstBad | None:
        """One operation against its reference, and if it is off, the smallest cut that shows it."""
        for name in op.results:
            wanted, reference = self._wanted(op, name)
            if wanted is None:
                self.without.append(op.name)
                return None
            error = self._error(op, wanted, self.values[name])
            if not error <= self._tolerance(op):
                return self._shown(name, wanted, reference, trial)
        self.checked += 1
        return None

    def _wanted(self, op: Operation, name: str) -> tuple[Values | None, str]:
        place = op.results.index(name)
        try:
            return evaluate(op, [self._value(one) for one in op.operands])[place], "float64"
        except NoReferenceError:
            if self.peer is None:
                return None, ""
        who, run = self.peer
        alone = cut(self.function, [name], given=around(self.function, name, 1, self._known), entry="peer")
        return self._typed(name, run(alone, self._arrays(alone))[0]), who

    def _error(self, op: Operation, wanted: Values, seen: Values) -> float:
        try:
            operands = [self._value(name) for name in op.operands]
            scale = rounding_scale(op, operands, wanted)
        except NoReferenceError:
            return largest_error(seen, wanted, np.abs(wanted))
        if op.kind == "compare":
            one, other = (operands * 2)[:2]
            near = np.abs(np.subtract(one, other)) <= TIE * (np.abs(one) + np.abs(other))
            return float(np.any((seen != wanted) & ~near))
        return largest_error(seen, wanted, scale)

    def _tolerance(self, op: Operation) -> float:
        return PRODUCTS if self.platform == "cuda" and op.kind in PRODUCTS_OF else ROUNDING

    def _shown(self, name: str, wanted: Values, reference: str, seen_in: Trial) -> FirstBad:
        """The smallest cut that shows it: the operation alone, or with what is before it, or what it was seen in."""
        op = self._makers[name]
        alone = self._try([name], around(self.function, name, 1, self._known), f"alone_{op.index}")
        error = self._error(op, wanted, self._typed(name, alone.outputs[0]))
        if not error <= self._tolerance(op):
            return self._bad(name, alone, wanted, error=error, tolerance=self._tolerance(op), by=reference)
        if grown := self._grown(name):
            return grown
        error = self._error(op, wanted, self.values[name])
        return self._bad(name, seen_in, wanted, error=error, tolerance=self._tolerance(op), by=reference)

    # -- what hides when all values are asked for --------------------------------------------------------------

    def hidden(self) -> FirstBad | None:
        """A fault that no operation shows where its own result is returned: cut by what is still needed later."""
        operations = [op for op in self.function.operations if not op.constant]
        low, high, name = 0, len(operations), None
        while low < high:
            middle = (low + high) // 2
            off = self._off_after(operations[: middle + 1])
            low, high, name = (low, middle, off) if off else (middle + 1, high, name)
        return self._grown(name) if name else None

    def _off_after(self, done: Sequence[Operation]) -> str | None:
        """After some operations, of the values that are still needed, the one that is furthest off; None if none is."""
        later = {name for op in self.function.operations[done[-1].index + 1 :] for name in op.operands}
        later.update(self.function.returned)
        live = [name for op in done for name in op.results if name in later and name in self._carried]
        trial = self._try(live, (), f"after_{done[-1].index}")
        wanted = self._together(trial)
        errors = {
            name: far_off(array, wanted[name])
            for name, array in zip(live, trial.outputs, strict=True)
            if name in wanted
        }
        worst = max(errors, key=lambda name: errors[name], default=None)
        return worst if worst is not None and not errors[worst] <= TOGETHER[self.platform] else None

    def _grown(self, name: str) -> FirstBad | None:
        """The smallest cut that ends in a value and shows that it is off, backwards from it; None if none does."""
        shallow, deep, found = 1, 2, None
        while found is None:
            found = self._off_from(name, deep)
            if found is None:
                if not around(self.function, name, deep, self._known) - set(self.function.arguments):
                    return None
                shallow, deep = deep, 2 * deep
        while deep - shallow > 1:
            middle = (shallow + deep) // 2
            nearer = self._off_from(name, middle)
            shallow, deep, found = (shallow, middle, nearer) if nearer else (middle, deep, found)
        return found

    def _off_from(self, name: str, depth: int) -> FirstBad | None:
        given = around(self.function, name, depth, self._known)
        trial = self._try([name], given, f"together_{self._makers[name].index}")
        wanted = self._together(trial)
        bound = TOGETHER[self.platform]
        if name not in wanted or (error := far_off(trial.outputs[0], wanted[name])) <= bound:
            return None
        return self._bad(name, trial, wanted[name], error=error, tolerance=bound, by="float64")

    def _together(self, trial: Trial) -> dict[str, Values]:
        """What a cut should make of what it was given, as far as float64 is computed."""
        inputs = zip(trial.cut.inputs, trial.inputs, strict=True)
        values = {name: self._typed(name, array) for name, array in inputs}
        for op in trial.cut.operations:
            if all(name in values for name in op.operands):
                try:
                    made = evaluate(op, [values[name] for name in op.operands])
                except NoReferenceError:
                    continue
                values.update(zip(op.results, made, strict=True))
        return values

    # -- values ------------------------------------------------------------------------------------------------

    def _try(self, wanted: Sequence[str], given: Collection[str], entry: str) -> Trial:
        made = cut(self.function, wanted, given=given, entry=entry)
        arrays = self._arrays(made)
        return Trial(cut=made, inputs=arrays, outputs=tuple(self.run(made, arrays)))

    def _arrays(self, made: Cut) -> tuple[Float32, ...]:
        return tuple(np.asarray(self.values[name], np.float32) for name in made.inputs)

    @property
    def _known(self) -> set[str]:
        """What a cut can be given; a constant stays in the text."""
        return {name for name in self.values if name not in self._makers or not self._makers[name].constant}

    def _value(self, name: str) -> Values:
        if name in self.values:
            value = self.values[name]
            return value.astype(np.float64) if value.dtype == np.float32 else value
        op = self._makers[name]
        if not op.constant:
            raise NoReferenceError(f"the value of {name} is not known")
        return evaluate(op, [])[0]

    def _typed(self, name: str, array: Float32) -> Values:
        """As the value's own type has it; floats stay in float32, which takes half the room."""
        kind = computed(self._types[name])
        if kind is np.bool_:
            return np.asarray(array != 0)
        return np.asarray(array, np.float32 if kind is np.float64 else kind)

    def _bad(
        self, name: str, trial: Trial, wanted: Values, *, error: float, tolerance: float, by: str
    ) -> FirstBad:
        output = trial.cut.outputs.index(name)
        real = [op for op in trial.cut.operations if not op.constant]
        return FirstBad(
            operation=self._makers[name],
            lowerer=self.lowerer,
            value=name,
            error=error,
            tolerance=tolerance,
            alone=len(real) <= 1,
            cut=trial.cut,
            output=output,
            inputs=trial.inputs,
            expected=wanted,
            seen=trial.outputs[output],
            reference=by,
        )
