"""Read the attributes in an operation's text: lists of numbers, constants, the layout of a convolution. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cudaboot.errors import NoReferenceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_cudaboot.rules.signature import TensorType
    from pytest_cudaboot.rules.stablehlo_text import Operation

    Values = NDArray[Any]

# What the interpreter computes in: floats in float64, integers and booleans as they are.
COMPUTED = {
    "i1": np.bool_,
    "i8": np.int8,
    "ui8": np.uint8,
    "i16": np.int16,
    "ui16": np.uint16,
    "i32": np.int32,
}
COMPUTED |= {"ui32": np.uint32, "i64": np.int64, "ui64": np.uint64}
FLOATS = {"f64": np.float64, "f32": np.float32, "f16": np.float16}
_NUMBER = r"-?\d+"
_DENSE = re.compile(r"dense<(.*?)>\s*(?=[:}])", re.DOTALL)


def numbers(op: Operation, *names: str) -> list[int] | None:
    """A list of whole numbers under any of these names: `= [1, 2]`, `= array<i64: 1, 2>`, `= dense<[1, 2]>`."""
    for name in names:
        found = re.search(
            rf"\b{name}\s*=\s*(?:array<i64(?::([^>]*))?>|dense<([^>]*)>|(\[[\s\d,\[\]-]*\]))", op.text
        )
        if found:
            return [
                int(number) for number in re.findall(_NUMBER, "".join(part or "" for part in found.groups()))
            ]
    return None


def number(op: Operation, name: str, otherwise: int) -> int:
    found = re.search(rf"\b{name}\s*=\s*({_NUMBER})", op.text)
    return int(found[1]) if found else otherwise


def spread(op: Operation, count: int, otherwise: int, *names: str) -> list[int]:
    """The same, one for each of `count` dimensions; what is absent is `otherwise` in all of them."""
    found = numbers(op, *names)
    if found is None:
        return [otherwise] * count
    return found * count if len(found) == 1 else found


def pairs(op: Operation, count: int, *names: str) -> list[tuple[int, int]]:
    """Padding, low and high of each dimension; none where it is absent."""
    flat = spread(op, 2 * count, 0, *names)
    return list(zip(flat[::2], flat[1::2], strict=True))


def literal(op: Operation) -> Values:
    """A constant's value, as its type has it.

    :raises NoReferenceError: it is written in a form that is not read here.
    """
    found, kind = _DENSE.search(op.text), op.types[0]
    if found is None:
        raise NoReferenceError(f"{op.text!r} is no dense constant")
    words = re.findall(r"[^\s,\[\]]+", found[1])
    if any(word.startswith('"') for word in words):
        raise NoReferenceError(f"line {op.line}: a constant of packed bytes is not read")
    values = [_value(word, kind) for word in words]
    if len(values) == 1:
        return np.full(kind.shape, values[0], computed(kind))
    return np.array(values, computed(kind)).reshape(kind.shape)


def computed(kind: TensorType) -> Any:
    """The NumPy type in which a tensor's values are computed."""
    if kind.dtype in COMPUTED:
        return COMPUTED[kind.dtype]
    if kind.dtype in (*FLOATS, "bf16"):
        return np.float64
    raise NoReferenceError(f"no values of type {kind.dtype}")


def _value(word: str, kind: TensorType) -> Any:
    if kind.dtype == "i1":
        return word == "true"
    if kind.dtype in COMPUTED:
        return int(word, 0)
    if word.startswith("0x"):
        if kind.dtype not in FLOATS:
            raise NoReferenceError(f"bits of {kind.dtype} are not read")
        width = np.dtype(FLOATS[kind.dtype]).itemsize
        return float(np.frombuffer(int(word, 16).to_bytes(width, "little"), FLOATS[kind.dtype])[0])
    # What the program says is the rounded number, whatever the digits are.
    return float(np.dtype(FLOATS.get(kind.dtype, np.float64)).type(word))


def reducer(op: Operation) -> str:
    """By what a reduction reduces, where that is one operation.

    :raises NoReferenceError: it is more than one.
    """
    applied = re.search(r"applies\s+stablehlo\.(\w+)", op.text)
    if applied:
        return str(applied[1])
    inner = [name for name in re.findall(r"=\s*\"?stablehlo\.(\w+)", op.text) if name != op.kind]
    if len(inner) != 1:
        raise NoReferenceError(
            f"line {op.line}: a reduction by {', '.join(inner) or 'nothing that is read here'}"
        )
    return str(inner[0])


def layout(op: Operation) -> tuple[list[str], list[str], list[str]]:
    """A convolution's dimensions by letter or number: those of the image, the kernel and the result.

    :raises NoReferenceError: they are written in another form.
    """
    found = re.search(r"\[([^\[\]]*)\]\s*x\s*\[([^\[\]]*)\]\s*->\s*\[([^\[\]]*)\]", op.text)
    if found is None:
        raise NoReferenceError(f"line {op.line}: a convolution without its dim_numbers")
    image, kernel, result = ([word.strip() for word in part.split(",")] for part in found.groups())
    return image, kernel, result
