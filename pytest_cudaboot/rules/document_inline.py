"""The inline parts of Markdown, each with its line: runs of words, code spans, links, and the sentences they make. Pure."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

_NEAR = 4096  # characters: no mark between two words is longer
# A sentence ends at a mark with a blank and a new beginning behind it; abbreviations end nothing.
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)[.!?][\"')\]*]*\s+(?=[A-Z`\"'(*⚠▶])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A run of characters of one line.

    :param mark: whether it is a backtick that the reader of the document does not see.
    :param target: of the link that it is a part of, or an empty string.
    """

    text: str
    line: int
    mark: bool = False
    target: str = ""


class _Cursor:
    """Where in the source of an inline token the reader is, and on which line."""

    def __init__(self, raw: str, line: int) -> None:
        self.raw, self.line, self.place = raw, line, 0

    def enter(self, words: str) -> int:
        """Go to where the words begin; where they do not stand as they are read, stay.

        Code spans hide line ends, so only their first word is looked for.
        """
        first = words.split(maxsplit=1)
        found = self.raw.find(first[0], self.place, self.place + _NEAR) if first else -1
        return self._go(found)

    def leave(self, words: str) -> None:
        """Go behind the words."""
        if self.raw.startswith(words, self.place):
            self._go(self.place + len(words))

    def _go(self, place: int) -> int:
        if place > self.place:
            self.line += self.raw.count("\n", self.place, place)
            self.place = place
        return self.line


def pieces(token: Token, line: int) -> Iterator[Piece]:
    """The inline parts with their lines; the source says where each begins."""
    cursor, target = _Cursor(token.content, line), ""
    for child in token.children or ():
        if child.type == "link_open":
            target = urllib.parse.unquote(str(child.attrs.get("href", "")))
        elif child.type == "link_close":
            target = ""
        elif child.type in ("softbreak", "hardbreak"):
            yield Piece(text=" ", line=cursor.line, target=target)
        elif child.content:
            here = cursor.enter(child.content)
            tick = [Piece(text="`", line=here, mark=True)] if child.type == "code_inline" else []
            yield from (*tick, Piece(text=child.content, line=here, target=target), *tick)
            cursor.leave(child.content)


def whole(parts: Sequence[Piece]) -> tuple[str, int]:
    return squeezed("".join(piece.text for piece in parts)), parts[0].line if parts else 0


def sentences(parts: Sequence[Piece]) -> Iterator[tuple[str, int]]:
    text = "".join(piece.text for piece in parts)
    lines = [piece.line for piece in parts for _ in piece.text]
    start = 0
    for end in (*_ends(text), len(text)):
        words = squeezed(text[start:end])
        if words:
            skipped = len(text[start:end]) - len(text[start:end].lstrip())
            yield words, lines[start + skipped]
        start = end


def _ends(text: str) -> Iterator[int]:
    """Where sentences end; a mark inside a code span ends nothing."""
    ticks, counted = 0, 0
    for match in _END.finditer(text):
        ticks += text.count("`", counted, match.end())
        counted = match.end()
        if ticks % 2 == 0:
            yield match.end()


def squeezed(text: str) -> str:
    return " ".join(text.split())
