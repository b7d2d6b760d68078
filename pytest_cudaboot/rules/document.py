"""What a bring-up document says where: headings, sentences, links, code blocks. Pure; it takes the text, not a file.

markdown-it-py reads the Markdown; every part keeps the line that it stands on.
"""

from __future__ import annotations

import itertools
import re
import urllib.parse
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from pytest_cudaboot.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from markdown_it.token import Token

    from pytest_cudaboot.rules.catalog import Catalog

LARGEST = 1 << 20  # bytes: more is no document that somebody follows by hand
_NEAR = 4096  # characters: no mark between two words is longer
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
# A sentence ends at a mark with a blank and a new beginning behind it; abbreviations end nothing.
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)[.!?][\"')\]*]*\s+(?=[A-Z`\"'(*⚠▶])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    """One heading.

    :param text: without its marks, backticks, emphasis and link targets.
    :param anchor: as GitHub makes it.
    :param line: from 1.
    """

    level: int
    text: str
    anchor: str
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One inline link; `target` is what stands in the document, anchor included.

    :param after: the words that follow it in its paragraph.
    """

    text: str
    target: str
    line: int
    after: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeBlock:
    """One block of code; `line` is its first line of code, `anchor` its heading's."""

    language: str
    text: str
    line: int
    anchor: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """One sentence of prose, or a heading.

    :param text: on one line, emphasis left out, code spans in backticks.
    :param paragraph: number of the paragraph that it is a part of.
    :param quoted: whether it stands in a block quote.
    """

    text: str
    line: int
    anchor: str
    paragraph: int
    quoted: bool = False
    heading: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A document, read."""

    headings: tuple[Heading, ...]
    sentences: tuple[Sentence, ...]
    links: tuple[Link, ...]
    blocks: tuple[CodeBlock, ...]


def read_document(path: Path) -> str:
    """The text of a document.

    :raises DocumentError: for a file that is too large or no text.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise DocumentError(
                f"{path}: {size} bytes is too large for a bring-up document; at most {LARGEST}"
            )
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"{path}: is no UTF-8 text (byte {error.start}); a document is Markdown"
        ) from error
    except OSError as error:
        raise DocumentError(f"{path}: can not be read: {error.strerror}") from error
    if "\0" in text:
        raise DocumentError(f"{path}: holds NUL bytes, so it is no text; a document is Markdown")
    return text


@lru_cache(maxsize=8)
def parse(text: str) -> Document:
    """Read a document's text."""
    reader = _Reader()
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        reader.take(token)
    return Document(
        headings=tuple(reader.headings),
        sentences=tuple(reader.sentences),
        links=tuple(reader.links),
        blocks=tuple(reader.blocks),
    )


class _Reader:
    """Walks the tokens in order and keeps what it needs of where it is."""

    def __init__(self) -> None:
        self.headings: list[Heading] = []
        self.sentences: list[Sentence] = []
        self.links: list[Link] = []
        self.blocks: list[CodeBlock] = []
        self.used: dict[str, int] = {}
        self.quotes = 0
        self.line = 1
        self.paragraph = 0
        self.opened: Token | None = None

    @property
    def anchor(self) -> str:
        return self.headings[-1].anchor if self.headings else ""

    def take(self, token: Token) -> None:
        self.line = token.map[0] + 1 if token.map else self.line
        if token.type == "blockquote_open":
            self.quotes += 1
        elif token.type == "blockquote_close":
            self.quotes -= 1
        elif token.type == "heading_open" and token.level == 0:
            self.opened = token
        elif token.type == "inline":
            self._inline(token)
        elif token.type in ("fence", "code_block"):
            self._block(token)

    def _inline(self, token: Token) -> None:
        self.paragraph += 1
        pieces = list(_pieces(token, self.line))
        if self.opened is not None:
            words = _squeezed("".join(piece.text for piece in pieces if not piece.mark))
            level, self.opened = int(self.opened.tag[1:]), None
            anchor = _anchor(words, self.used)
            self.headings.append(Heading(level=level, text=words, anchor=anchor, line=self.line))
            self._say(pieces, heading=True)
        else:
            self._say(pieces)
        self.links += _links(pieces)

    def _say(self, pieces: Sequence[_Piece], *, heading: bool = False) -> None:
        for text, line in [_whole(pieces)] if heading else _sentences(pieces):
            self.sentences.append(
                Sentence(
                    text=text,
                    line=line,
                    anchor=self.anchor,
                    paragraph=self.paragraph,
                    quoted=self.quotes > 0,
                    heading=heading,
                )
            )

    def _block(self, token: Token) -> None:
        info = token.info.split()
        first = self.line + (1 if token.type == "fence" else 0)
        if token.content:
            language = info[0] if info else ""
            self.blocks.append(
                CodeBlock(language=language, text=token.content, line=first, anchor=self.anchor)
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
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


def _pieces(token: Token, line: int) -> Iterator[_Piece]:
    """The inline parts with their lines; the source says where each begins."""
    cursor, target = _Cursor(token.content, line), ""
    for child in token.children or ():
        if child.type == "link_open":
            target = urllib.parse.unquote(str(child.attrs.get("href", "")))
        elif child.type == "link_close":
            target = ""
        elif child.type in ("softbreak", "hardbreak"):
            yield _Piece(text=" ", line=cursor.line, target=target)
        elif child.content:
            here = cursor.enter(child.content)
            tick = [_Piece(text="`", line=here, mark=True)] if child.type == "code_inline" else []
            yield from (*tick, _Piece(text=child.content, line=here, target=target), *tick)
            cursor.leave(child.content)


def _whole(pieces: Sequence[_Piece]) -> tuple[str, int]:
    return _squeezed("".join(piece.text for piece in pieces)), pieces[0].line if pieces else 0


def _sentences(pieces: Sequence[_Piece]) -> Iterator[tuple[str, int]]:
    text = "".join(piece.text for piece in pieces)
    lines = [piece.line for piece in pieces for _ in piece.text]
    start = 0
    for end in (*_ends(text), len(text)):
        words = _squeezed(text[start:end])
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


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _links(pieces: Sequence[_Piece]) -> Iterator[Link]:
    """Pieces that stand together and lead to one place are one link."""
    seen = [piece for piece in pieces if not piece.mark]
    start = 0
    for target, group in itertools.groupby(seen, key=lambda piece: piece.target):
        own = list(group)
        start += len(own)
        if target and not _SCHEME.match(target):
            after = "".join(piece.text for piece in seen[start:])
            text = "".join(piece.text for piece in own)
            yield Link(text=text, target=target, line=own[0].line, after=after)


def headings(text: str) -> tuple[Heading, ...]:
    """The headings of a document, in its order."""
    return parse(text).headings


def plain(text: str) -> str:
    """Inline Markdown as a reader sees it."""
    (token,) = MarkdownIt("commonmark").parseInline(text.strip())
    return _squeezed("".join(piece.text for piece in _pieces(token, 1) if not piece.mark))


def _anchor(words: str, used: dict[str, int]) -> str:
    anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
    count = used.get(anchor, 0)
    used[anchor] = count + 1
    return f"{anchor}-{count}" if count else anchor


def missing_headings(catalog: Catalog, text: str) -> list[str]:
    """A sentence for each spec whose heading the document does not have; an orphan."""
    there = {heading.text for heading in headings(text)}
    return [
        f"{spec.id}: the document has no heading {spec.heading!r}"
        for spec in catalog.specs.values()
        if plain(spec.heading) not in there
    ]


def links(text: str) -> tuple[Link, ...]:
    """The relative links, code left out: files beside the document, and its own anchors."""
    return parse(text).links


def code_blocks(text: str, language: str) -> tuple[CodeBlock, ...]:
    """The blocks of one language, as printed."""
    return tuple(block for block in parse(text).blocks if block.language == language)
