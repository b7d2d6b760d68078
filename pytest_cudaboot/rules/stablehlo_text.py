"""Read the operations of an artifact's one function, in order, each with its operands and what it makes.

It is no MLIR parser: it knows statements, names and types. An operation whose types it can not read stays as it is, and
is only never asked for its values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import SignatureError
from pytest_cudaboot.rules.signature import Reader, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REFERENCE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_RESULTS = re.compile(r"\s*(%[\w.$-]+(?::\d+)?(?:\s*,\s*%[\w.$-]+(?::\d+)?)*)\s*=(?!=)\s*")
_NAME = re.compile(r'"?([\w.]+)"?')
_RETURN = re.compile(r"\s*(?:func\.)?return\b")
_BEGINS = re.compile(rf'(?:{_RESULTS.pattern})|(?:{_RETURN.pattern})|\s*"|\s*[a-z_]+\.[a-z_]+[ (]')
_LOCATION = re.compile(r'\s+loc\((?:[^()"]|"[^"\n]*"|\([^()]*\))*\)')
_OPENING, _CLOSING = "([{<", ")]}>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One statement of the function.

    :param line: in the artifact, from 1.
    :param text: all its lines, as they stand, without locations.
    :param results: the values that it makes: `%5`, or `%5#0` and `%5#1` of several.
    :param types: of the results; empty where they could not be read.
    :param operands: the function's values that it uses, those that only its regions use among them; each once.
    """

    index: int
    line: int
    name: str
    text: str
    results: tuple[str, ...]
    types: tuple[TensorType, ...]
    operands: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Its name without the dialect."""
        return self.name.rpartition(".")[2]

    @property
    def constant(self) -> bool:
        """Whether it needs nothing, so that a copy of it costs nothing."""
        return not self.operands and self.kind in ("constant", "iota")


@dataclass(frozen=True, kw_only=True, slots=True)
class Function:
    """An artifact's function: arguments, operations, and the values that it returns."""

    entry: str
    arguments: Mapping[str, TensorType]
    operations: tuple[Operation, ...]
    returned: tuple[str, ...]

    @property
    def types(self) -> dict[str, TensorType]:
        """Of every value whose type is known."""
        made = {
            name: kind for op in self.operations for name, kind in zip(op.results, op.types, strict=False)
        }
        return {**self.arguments, **made}

    def makers(self) -> dict[str, Operation]:
        """By value, the operation that makes it."""
        return {name: op for op in self.operations for name in op.results}


def read_function(text: str) -> Function:
    """The operations of a module's only function.

    :raises SignatureError: there is no such function, or it returns what it does not make.
    """
    reader = Reader(text)
    reader.check_brackets()
    entry, opening = reader.entry_name(reader.only_function())
    closing = reader.closing(opening)
    arguments = dict(_arguments(reader, opening, closing))
    _, after = reader.results(closing + 1)
    known = dict.fromkeys(arguments)
    operations: list[Operation] = []
    returned: tuple[str, ...] = ()
    for begin, end in _statements(reader.bare, reader.check_body(entry, after)):
        if _RETURN.match(reader.bare, begin, end):
            returned = tuple(REFERENCE.findall(reader.bare, begin, end))
            continue
        start = begin + len(reader.bare[begin:end]) - len(reader.bare[begin:end].lstrip())
        line = text.count("\n", 0, start) + 1
        made = _operation(len(operations), line, text[start:end].rstrip(), known)
        operations.append(made)
        known.update(dict.fromkeys(made.results))
    if lacking := [name for name in returned if name not in known]:
        raise SignatureError(f"@{entry} returns {', '.join(lacking)}, which nothing in it makes")
    return Function(entry=entry, arguments=arguments, operations=tuple(operations), returned=returned)


def _arguments(reader: Reader, opening: int, closing: int) -> Iterator[tuple[str, TensorType]]:
    for begin, end in reader.parts(opening + 1, closing):
        named = REFERENCE.search(reader.bare, begin, end)
        if named is None:
            raise reader.refusal(begin, "an argument has no name")
        yield named.group(), reader.tensor(begin, end)


def _statements(bare: str, opening: int) -> Iterator[tuple[int, int]]:
    """The spans of the body's statements; one goes on over lines that begin none."""
    depth, begin = 0, opening + 1
    for match in re.finditer(r"[()\[\]{}\n]", bare[opening:]):
        at, found = opening + match.start(), match.group()
        if found == "\n":
            if depth == 1 and _BEGINS.match(bare, at):
                if bare[begin:at].strip():
                    yield begin, at
                begin = at
            continue
        depth += 1 if found in _OPENING else -1
        if depth == 0:
            if bare[begin:at].strip():
                yield begin, at
            return


def _operation(index: int, line: int, text: str, known: Mapping[str, object]) -> Operation:
    text = _LOCATION.sub("", text)
    head = _RESULTS.match(text)
    results = tuple(_results(head[1])) if head else ()
    rest = text[head.end() :] if head else text
    named = _NAME.match(rest)
    used = dict.fromkeys(name for name in REFERENCE.findall(Reader(rest).bare) if name in known)
    return Operation(
        index=index,
        line=line,
        name=named[1] if named else "",
        text=text,
        results=results,
        types=_types(rest, len(results)),
        operands=tuple(used),
    )


def _results(text: str) -> Iterator[str]:
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        yield from (f"{name}#{place}" for place in range(int(count))) if count else (name,)


def _types(statement: str, results: int) -> tuple[TensorType, ...]:
    """The types of the results, by the statement's own word at its end; empty where it has another form."""
    reader = Reader(statement)
    colon = _last_colon(reader.bare)
    if colon is None:
        return ()
    try:
        at = colon + 1 + len(reader.bare[colon + 1 :]) - len(reader.bare[colon + 1 :].lstrip())
        if reader.bare.startswith("(", at):
            types, _ = reader.results(reader.closing(at) + 1)
        else:
            types = tuple(_listed(reader, at))
    except SignatureError:
        return ()
    if results == 1:
        return types[-1:]  # `select` lists its predicate first
    return types if len(types) == results else ()


def _listed(reader: Reader, at: int) -> Iterator[TensorType]:
    while True:
        tensor, at = reader.type_at(at)
        yield tensor
        following = re.compile(r"\s*,").match(reader.bare, at)
        if following is None:
            return
        at = following.end()


def _last_colon(bare: str) -> int | None:
    """Of those outside all brackets: what follows it are types."""
    depth, last = 0, None
    for match in re.finditer(r"->|[()\[\]{}<>:]", bare):
        found = match.group()
        if found == ":" and depth == 0:
            last = match.start()
        elif found in _OPENING:
            depth += 1
        elif found in _CLOSING:
            depth -= 1
    return last
