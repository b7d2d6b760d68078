"""Compute single StableHLO operations in float64, and say how far rounding may carry a result. Pure: arrays in and out.

What is not known here has no reference, and that is said; nothing is guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pytest_cudaboot.errors import NoReferenceError
from pytest_cudaboot.rules import stablehlo_windows as windows
from pytest_cudaboot.rules.stablehlo_words import computed, literal, number, numbers, reducer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_cudaboot.rules.stablehlo_text import Function, Operation
    from pytest_cudaboot.rules.stablehlo_words import Values

    Compute = Callable[[Operation, Sequence[Values]], Values]

_STEP = 1e-6  # relative, of a derivative's difference

UNARY: dict[str, Callable[[Values], Values]] = {
    "abs": np.abs,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cosine": np.cos,
    "exponential": np.exp,
    "exponential_minus_one": np.expm1,
    "floor": np.floor,
    "log": np.log,
    "log_plus_one": np.log1p,
    "logistic": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "negate": np.negative,
    "not": np.logical_not,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sign": np.sign,
    "sine": np.sin,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
BINARY: dict[str, Callable[[Values, Values], Values]] = {
    "add": np.add,
    "and": np.logical_and,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "or": np.logical_or,
    "power": np.power,
    "subtract": np.subtract,
    "xor": np.logical_xor,
}
BITWISE = ("and", "or", "xor", "not")
COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
# Sums of products: rounding is a share of what the sum of their sizes is.
SUMS = ("dot_general", "dot", "convolution", "reduce", "reduce_window")


def evaluate(op: Operation, operands: Sequence[Values]) -> list[Values]:
    """An operation's results in float64, from the values of its operands in their order.

    :raises NoReferenceError: it is none that is computed here.
    """
    if len(op.types) != 1:
        raise NoReferenceError(f"line {op.line}: {op.name} with {len(op.types)} results")
    compute = _OTHERS.get(op.kind, _elementwise)
    try:
        with np.errstate(all="ignore"):
            made = compute(op, _spelt(op, operands))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        # It is written in a form that is read wrongly here: then it is not known, and must not end a run.
        raise NoReferenceError(f"line {op.line}: {op.name} is not read: {error}") from error
    made = np.asarray(made, computed(op.types[0]))
    if made.shape != op.types[0].shape:
        raise NoReferenceError(f"line {op.line}: {op.name} was read as of shape {made.shape!r}")
    return [made]


def rounding_scale(op: Operation, operands: Sequence[Values], made: Values) -> Values:
    """In what size, value by value, an operation's rounding is counted: what its operands' own rounding would move."""
    size = np.abs(made)
    if made.dtype == np.bool_ or op.kind not in (*UNARY, *BINARY, *SUMS):
        return np.asarray(size, np.float64)
    with np.errstate(all="ignore"):
        if op.kind in SUMS:
            return np.maximum(size, np.abs(evaluate(op, [np.abs(one) for one in operands])[0]))
        used = _spelt(op, operands)
        for place, one in enumerate(used):
            moved = [*used[:place], one * (1 + _STEP), *used[place + 1 :]]
            change = np.abs(_elementwise(op, moved) - made) / _STEP
            size = size + np.where(np.isfinite(change), change, 0.0)
    return np.asarray(size)


def interpret(
    function: Function, inputs: Mapping[str, Values], known: Mapping[str, Values] | None = None
) -> dict[str, Values]:
    """Every value of a function in float64.

    :param inputs: by argument; `known` are values that are taken as they are instead of computed.
    :raises NoReferenceError: an operation is none that is computed here.
    """
    values = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
    values.update(known or {})
    for op in function.operations:
        if any(name not in values for name in op.results):
            values.update(zip(op.results, evaluate(op, [values[name] for name in op.operands]), strict=True))
    return values


def _spelt(op: Operation, operands: Sequence[Values]) -> list[Values]:
    """The operands as the text spells them: `multiply %4, %4` has two, of one value."""
    by_name = dict(zip(op.operands, operands, strict=True))
    wanted = 1 if op.kind in UNARY else 2
    if op.kind not in (*UNARY, *BINARY):
        return list(operands) if op.kind not in _SPELT else [by_name[name] for name in _names(op, by_name)]
    spelt = [by_name[name] for name in _names(op, by_name)]
    if len(spelt) != wanted:
        raise NoReferenceError(f"line {op.line}: {op.name} with {len(spelt)} operands")
    return spelt


_SPELT = frozenset(
    {"compare", "select", "clamp", "dot_general", "dot", "convolution", "concatenate", "reduce_window"}
)
_SPELT |= {"select_and_scatter", "pad"}


def _names(op: Operation, known: Mapping[str, object]) -> list[str]:
    rest = op.text.partition("=")[2].partition("({")[0]
    return [name for name in re.findall(r"%[\w.$-]+(?:#\d+)?", rest) if name in known]


def _elementwise(op: Operation, operands: Sequence[Values]) -> Values:
    if op.kind in BITWISE and op.types[0].dtype != "i1":
        raise NoReferenceError(f"line {op.line}: {op.name} of bits")
    if op.kind in UNARY:
        return UNARY[op.kind](operands[0])
    if op.kind in BINARY:
        return BINARY[op.kind](operands[0], operands[1])
    raise NoReferenceError(
        f"line {op.line}: {op.name or op.text.split(maxsplit=1)[0]!r} is not computed here"
    )


def _dims(op: Operation, *names: str) -> list[int]:
    found = numbers(op, *names)
    if found is None:
        raise NoReferenceError(f"line {op.line}: {op.name} without {names[0]}")
    return found


def _broadcast(op: Operation, operands: Sequence[Values]) -> Values:
    array, shape = operands[0], op.types[0].shape
    sizes = [1] * len(shape)
    for axis, into in enumerate(_dims(op, "dims", "broadcast_dimensions")):
        sizes[into] = array.shape[axis]
    order = np.argsort(_dims(op, "dims", "broadcast_dimensions"), kind="stable")
    return np.broadcast_to(np.transpose(array, order).reshape(sizes), shape)


def _iota(op: Operation, _operands: Sequence[Values]) -> Values:
    shape, axis = op.types[0].shape, number(op, "dim", number(op, "iota_dimension", 0))
    sizes = [size if place == axis else 1 for place, size in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[axis]).reshape(sizes), shape)


def _compare(op: Operation, operands: Sequence[Values]) -> Values:
    found = re.search(r"\bcompare\s+(\w\w),|comparison_direction\s+(\w\w)>", op.text)
    if found is None:
        raise NoReferenceError(f"line {op.line}: a comparison without its direction")
    return np.asarray(COMPARISONS[found[1] or found[2]](operands[0], operands[1]))


def _convert(op: Operation, operands: Sequence[Values]) -> Values:
    kind = op.types[0]
    if kind.dtype == "i1":
        return np.asarray(operands[0] != 0)
    if kind.dtype in ("f16", "bf16"):
        raise NoReferenceError(f"line {op.line}: rounding to {kind.dtype} is not computed here")
    return np.asarray(operands[0]).astype(computed(kind))


def _reduce(op: Operation, operands: Sequence[Values]) -> Values:
    by = windows.REDUCERS.get(reducer(op))
    if by is None or len(operands) != 2:  # noqa: PLR2004, an array and what it starts from
        raise NoReferenceError(f"line {op.line}: a reduction of {len(operands)} operands by {reducer(op)}")
    axes = tuple(_dims(op, "dimensions"))
    return np.asarray(by(by.reduce(operands[0], axis=axes) if axes else operands[0], operands[1]))


def _dot(op: Operation, operands: Sequence[Values]) -> Values:
    """Batch dimensions come first in the result, then what is left of each side."""
    left, right = operands
    sums, batches = _sides(op, "contracting"), _sides(op, "batching")
    if op.kind == "dot":
        sums = [left.ndim - 1], [0]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first = [next(letters) for _ in range(left.ndim)]
    second = [next(letters) for _ in range(right.ndim)]
    for mine, its in (*zip(*sums, strict=True), *zip(*batches, strict=True)):
        second[its] = first[mine]
    shared = [first[axis] for axis in batches[0]]
    dropped = {first[axis] for axis in (*sums[0], *batches[0])}
    kept = [letter for letter in (*first, *second) if letter not in dropped]
    line = f"{''.join(first)},{''.join(second)}->{''.join((*shared, *kept))}"
    return np.asarray(np.einsum(line, left, right, optimize=True))


def _sides(op: Operation, what: str) -> tuple[list[int], list[int]]:
    short = re.search(rf"{what}_dims\s*=\s*(\[[^\]]*\])\s*x\s*(\[[^\]]*\])", op.text)
    if short:
        left, right = ([int(one) for one in re.findall(r"\d+", part)] for part in short.groups())
        return left, right
    return numbers(op, f"lhs_{what}_dimensions") or [], numbers(op, f"rhs_{what}_dimensions") or []


def _slice(op: Operation, operands: Sequence[Values]) -> Values:
    spans = re.findall(r"(\d+):(\d+)(?::(\d+))?", op.text.partition("[")[2].partition("]")[0])
    return operands[0][tuple(slice(int(a), int(b), int(c or 1)) for a, b, c in spans)]


def _pad(op: Operation, operands: Sequence[Values]) -> Values:
    low, high, inner = (_dims(op, name, f"edge_padding_{name}") for name in ("low", "high", "interior"))
    if any(inner) or min(*low, *high) < 0:
        raise NoReferenceError(f"line {op.line}: a pad between values, or that cuts off")
    return np.pad(operands[0], list(zip(low, high, strict=True)), constant_values=operands[1].item())


_OTHERS: dict[str, Compute] = {
    "broadcast_in_dim": _broadcast,
    "compare": _compare,
    "concatenate": lambda op, of: np.concatenate(of, axis=number(op, "dim", number(op, "dimension", 0))),
    "constant": lambda op, _: literal(op),
    "convert": _convert,
    "convolution": windows.convolution,
    "dot": _dot,
    "dot_general": _dot,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reduce_window": windows.reduce_window,
    "reshape": lambda op, of: of[0].reshape(op.types[0].shape),
    "reverse": lambda op, of: np.flip(of[0], tuple(_dims(op, "dims", "dimensions"))),
    "select": lambda _, of: np.where(of[0], of[1], of[2]),
    "select_and_scatter": windows.select_and_scatter,
    "slice": _slice,
    "transpose": lambda op, of: np.transpose(of[0], _dims(op, "dims", "permutation")),
}
