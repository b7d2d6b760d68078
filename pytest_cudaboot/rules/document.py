"""What a bring-up document says where: headings, sentences, links, code blocks. Pure; it takes the text, not a file.

markdown-it-py reads the Markdown; every part keeps the line that it stands on.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import DocumentError
from pytest_cudaboot.rules.document_inline import Piece, pieces, sentences, squeezed, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from markdown_it.token import Token

    from pytest_cudaboot.rules.catalog import Catalog

LARGEST = 256 << 10  # bytes: more is no document that somebody follows by hand
FOLLOWING = 8  # pieces: what follows a link matters as far as it speaks of the link
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


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
    from markdown_it import MarkdownIt  # most processes of a run read no document

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
        parts = list(pieces(token, self.line))
        if self.opened is not None:
            words = squeezed("".join(piece.text for piece in parts if not piece.mark))
            level, self.opened = int(self.opened.tag[1:]), None
            anchor = _anchor(words, self.used)
            self.headings.append(Heading(level=level, text=words, anchor=anchor, line=self.line))
            self._say(parts, heading=True)
        else:
            self._say(parts)
        self.links += _links(parts)

    def _say(self, parts: Sequence[Piece], *, heading: bool = False) -> None:
        for text, line in [whole(parts)] if heading else sentences(parts):
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


def _links(parts: Sequence[Piece]) -> Iterator[Link]:
    """Pieces that stand together and lead to one place are one link."""
    seen = [piece for piece in parts if not piece.mark]
    start = 0
    for target, group in itertools.groupby(seen, key=lambda piece: piece.target):
        own = list(group)
        start += len(own)
        if target and not _SCHEME.match(target):
            after = "".join(piece.text for piece in seen[start : start + FOLLOWING])
            text = "".join(piece.text for piece in own)
            yield Link(text=text, target=target, line=own[0].line, after=after)


def headings(text: str) -> tuple[Heading, ...]:
    """The headings of a document, in its order."""
    return parse(text).headings


def plain(text: str) -> str:
    """Inline Markdown as a reader sees it."""
    from markdown_it import MarkdownIt

    (token,) = MarkdownIt("commonmark").parseInline(text.strip())
    return squeezed("".join(piece.text for piece in pieces(token, 1) if not piece.mark))


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


def shell_lines(text: str) -> list[str]:
    """The lines of the bash blocks, those that go on after a backslash joined."""
    blocks = (block.text.replace("\\\n", "") for block in code_blocks(text, "bash"))
    return [line for block in blocks for line in block.splitlines()]
