"""Read the entry's signature from a StableHLO module's text, and hold an artifact to its rules.

It is the twin of the shim's own reader, and no MLIR parser: it knows comments, strings, brackets and the head of a
function. What it does not understand it refuses, by line; it never guesses a shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import SignatureError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CLOSERS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_FUNCTION = re.compile(r"(?<![\w.$%@#!-])func\.func(?![\w.$-])")
_MODULE = re.compile(r"(?<![\w.$%@#!-])(?:builtin\.)?module(?![\w.$-])")
_NAME = re.compile(r'\s*(?:(?:public|private|nested)\s+)?@(?:"(?P<quoted> *)"|(?P<plain>[\w.$-]+))\s*')
_DIMENSION = re.compile(r"\s*(?P<size>\d+|\?)\s*x")
_ELEMENT = re.compile(r"\s*(?P<element>[a-zA-Z][\w.]*(?:<\s*\w+\s*>)?)\s*")
_ARGUMENT = re.compile(r"\s*%[\w.$-]+\s*:")
_TENSOR = re.compile(r"\s*tensor\s*(?=<)")
_ARROW = re.compile(r"\s*->\s*")
_ATTRIBUTES = re.compile(r"\s*attributes\s*(?=\{)")


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's static shape and its element type as the text spells it (`f32`, `i32`)."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"tensor<{'x'.join([*map(str, self.shape), self.dtype])}>"


@dataclass(frozen=True, slots=True)
class Signature:
    """The one function of a module: its name, and what goes in and comes out, in order."""

    entry: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]


def read_signature(text: str) -> Signature:
    """The signature of a module's only function.

    :raises SignatureError: there is no such function, or more than one, or its types can not be known.
    """
    reader = Reader(text)
    reader.check_brackets()
    start = reader.only_function()
    entry, opening = reader.entry_name(start)
    closing = reader.closing(opening)
    inputs = tuple(reader.tensor(begin, end) for begin, end in reader.parts(opening + 1, closing))
    outputs, after = reader.results(closing + 1)
    reader.check_body(entry, after)
    return Signature(entry, inputs, outputs)


def check_artifact(path: Path) -> Signature:
    """The signature of an artifact that keeps the rules: entry called as the file's stem, float32, static shapes.

    :raises SignatureError: it breaks one of them; the message names the file.
    """
    try:
        signature = read_signature(_decode(path.read_bytes()))
    except OSError as error:
        raise SignatureError(f"{path}: can not be read: {error.strerror}") from error
    except SignatureError as error:
        raise SignatureError(f"{path}: {error}") from None
    if signature.entry != path.stem:
        raise SignatureError(
            f"{path}: the entry is called {signature.entry!r}; the file asks for {path.stem!r}"
        )
    for kind, types in (("input", signature.inputs), ("output", signature.outputs)):
        for index, tensor in enumerate(types):
            if tensor.dtype != "f32":
                raise SignatureError(f"{path}: {kind} {index} is {tensor}; the ABI passes f32 only")
    return signature


def artifact_fault(path: Path) -> str | None:
    """What keeps a file from being an artifact, in words; None if it is one."""
    try:
        check_artifact(path)
    except SignatureError as error:
        return str(error)
    return None


def read_declaration(text: str) -> Signature:
    """The signature that a compiled module declares: `sync func @f(%input0: tensor<4xf32>) -> (%output0: ...)`.

    :raises SignatureError: it is written in another way.
    """
    head, _, rest = text.partition("func @")
    if not rest or head.strip() not in ("sync", "async"):
        raise SignatureError(f"{text!r} is no declaration of IREE's")
    return read_signature(f"func.func @{rest} {{}}")


def require_agreement(text: Signature, declared: Signature) -> None:
    """A module must be of the graph that it is said to be of.

    :raises SignatureError: the two signatures differ; the message names the first difference.
    """
    if text.entry != declared.entry:
        raise SignatureError(f"the module is of @{declared.entry}, and the text of @{text.entry}")
    for kind, ours, theirs in (
        ("input", text.inputs, declared.inputs),
        ("output", text.outputs, declared.outputs),
    ):
        if len(ours) != len(theirs):
            raise SignatureError(
                f"@{text.entry}: {len(ours)} {kind}s in the text, {len(theirs)} in the module"
            )
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                raise SignatureError(
                    f"@{text.entry}: {kind} {index} is {one} in the text, {other} in the module"
                )


def _decode(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SignatureError(f"is not StableHLO text: byte {error.start} is not UTF-8") from None
    if "\0" in text:
        raise SignatureError(f"is not StableHLO text: byte {data.index(0)} is zero")
    return text


class Reader:
    """A module's text, with a copy of equal length in which comments and the insides of strings are blank."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.bare = self._bare()

    def refusal(self, at: int, message: str) -> SignatureError:
        return SignatureError(f"line {self.text.count(chr(10), 0, at) + 1}: {message}")

    def _bare(self) -> str:
        pieces: list[str] = []
        at = 0
        for match in re.finditer(r'//[^\n]*|"(?:[^"\\\n]|\\.)*(?P<end>"?)', self.text):
            found = match.group()
            quoted = found.startswith('"')
            if quoted and not match["end"]:
                raise self.refusal(match.start(), "a string does not end")
            inside = " " * (len(found) - 2)
            pieces += [self.text[at : match.start()], f'"{inside}"' if quoted else f"  {inside}"]
            at = match.end()
        return "".join([*pieces, self.text[at:]])

    def check_brackets(self) -> None:
        """Round, square and curly ones; angle brackets also stand for arrows and comparisons."""
        opened: list[int] = []
        for match in re.finditer(r"[()\[\]{}]", self.bare):
            bracket = match.group()
            if bracket in _CLOSERS:
                opened.append(match.start())
            elif not opened or _CLOSERS[self.bare[opened.pop()]] != bracket:
                raise self.refusal(match.start(), f"{bracket!r} closes nothing")
        if opened:
            raise self.refusal(opened[-1], f"{self.bare[opened[-1]]!r} is never closed; is the text cut off?")

    def only_function(self) -> int:
        """Where the head of the module's one function goes on after `func.func`."""
        modules = list(_MODULE.finditer(self.bare))
        if len(modules) > 1:
            raise self.refusal(modules[1].start(), f"{len(modules)} modules; an artifact is one module")
        functions = list(_FUNCTION.finditer(self.bare))
        if not functions:
            raise SignatureError("no func.func in the text; is it StableHLO in its printed form?")
        if len(functions) > 1:
            names = ", ".join(repr(self.entry_name(match.end())[0]) for match in functions)
            raise SignatureError(
                f"{len(functions)} functions ({names}); an artifact has exactly one func.func"
            )
        return functions[0].end()

    def entry_name(self, start: int) -> tuple[str, int]:
        """The function's name, and where its argument list opens."""
        match = _NAME.match(self.bare, start)
        if match is None:
            raise self.refusal(start, "func.func is not followed by @name")
        if self.bare[match.end() : match.end() + 1] != "(":
            raise self.refusal(
                match.end(), "the function's name is not followed by its arguments in parentheses"
            )
        group = "plain" if match["plain"] else "quoted"
        return self.text[match.start(group) : match.end(group)], match.end()

    def closing(self, opening: int) -> int:
        """Where the bracket that opens there is closed. The arrow `->` closes nothing."""
        depth = 0
        for match in re.finditer(r"->|[()\[\]{}<>]", self.bare[opening:]):
            if match.group() != "->":
                depth += 1 if match.group() in _CLOSERS else -1
            if depth == 0:
                return opening + match.start()
        raise self.refusal(opening, f"{self.bare[opening]!r} is never closed; is the text cut off?")

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The spans between the commas of a list, those inside brackets left alone."""
        at = begin = start
        while at < end:
            if self.bare[at] in _CLOSERS:
                at = self.closing(at)
            elif self.bare[at] == ",":
                yield begin, at
                begin = at + 1
            at += 1
        if self.bare[begin:end].strip() or begin > start:
            yield begin, end

    def tensor(self, start: int, end: int) -> TensorType:
        """The type in a span such as `%x: tensor<4xf32> {attributes}`; name and attributes may be absent."""
        name = _ARGUMENT.match(self.bare, start, end)
        tensor, after = self.type_at(name.end() if name else start)
        rest = self.bare[after:end].strip()
        if after > end or (rest and not rest.startswith(("{", "loc("))):
            raise self.refusal(start, f"{self.text[start:end].strip()!r} is not one tensor")
        return tensor

    def type_at(self, start: int) -> tuple[TensorType, int]:
        """The tensor type that begins there, and where it ends."""
        match = _TENSOR.match(self.bare, start)
        if match is None:
            found = self.text[start : start + 40].strip().split("\n")[0]
            raise self.refusal(start, f"expected a tensor type, found {found!r}")
        closing = self.closing(match.end())
        return self._inside(match.end() + 1, closing), closing + 1

    def _inside(self, start: int, end: int) -> TensorType:
        whole = f"tensor<{self.bare[start:end]}>"
        shape = []
        at = start
        while match := _DIMENSION.match(self.bare, at, end):
            if match["size"] == "?":
                raise self.refusal(start, f"{whole} has a dynamic dimension; shapes must be static")
            shape.append(int(match["size"]))
            at = match.end()
        element = _ELEMENT.fullmatch(self.bare, at, end)
        if element is None:
            raise self.refusal(start, f"{whole} is no plain tensor type of static shape")
        return TensorType(tuple(shape), element["element"])

    def results(self, start: int) -> tuple[tuple[TensorType, ...], int]:
        """The types behind the arrow, and where they end. One type needs no parentheses."""
        arrow = _ARROW.match(self.bare, start)
        if arrow is None:
            return (), start
        if self.bare[arrow.end() : arrow.end() + 1] != "(":
            tensor, after = self.type_at(arrow.end())
            return (tensor,), after
        closing = self.closing(arrow.end())
        spans = self.parts(arrow.end() + 1, closing)
        return tuple(self.tensor(begin, end) for begin, end in spans), closing + 1

    def check_body(self, entry: str, at: int) -> int:
        """Where the function's body opens."""
        attributes = _ATTRIBUTES.match(self.bare, at)
        if attributes:
            at = self.closing(attributes.end()) + 1
        if not self.bare[at:].lstrip().startswith("{"):
            raise self.refusal(at, f"@{entry} is declared, and has no body")
        return self.bare.index("{", at)
