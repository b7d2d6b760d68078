"""What a bring-up document says where: headings, sections, links, code blocks. Pure; it takes the text, not a file.

Only the Markdown that such documents use is read: ATX headings, fenced code, inline links.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_cudaboot.rules.catalog import Catalog

_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_ATX = re.compile(r" {0,3}(?P<marks>#{1,6})(?:[ \t]+(?P<text>.*?))?(?:[ \t]+#+)?[ \t]*")
_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
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
class Section:
    """A heading and what follows it, up to the next heading of any level.

    :param sha256: of the body, blanks at line ends and around it left out, so that only words count.
    """

    heading: Heading
    body: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One inline link; `target` is what stands in the document, anchor included."""

    text: str
    target: str
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeBlock:
    """One fenced block; `line` is its first line of code."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class _Line:
    """A line and what it belongs to.

    :param fence: the info string of the block that it stands in, None outside of blocks.
    :param edge: whether it opens or closes a block.
    """

    number: int
    text: str
    fence: str | None
    edge: bool


def _lines(text: str) -> Iterator[_Line]:
    opened, info = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.fullmatch(line)
        if match is None or (opened and not _closes(match, opened)) or (not opened and _inline(match)):
            yield _Line(number, line, info if opened else None, edge=False)
            continue
        opened, info = ("", "") if opened else (match["fence"], match["info"].strip())
        yield _Line(number, line, info, edge=True)


def _closes(match: re.Match[str], opened: str) -> bool:
    fence = match["fence"]
    return fence[0] == opened[0] and len(fence) >= len(opened) and not match["info"].strip()


def _inline(match: re.Match[str]) -> bool:
    """Backticks on one line, ` ```code``` `, open nothing."""
    return match["fence"][0] == "`" and "`" in match["info"]


def headings(text: str) -> tuple[Heading, ...]:
    """The headings of a document, in its order."""
    found: list[Heading] = []
    used: dict[str, int] = {}
    for line in _lines(text):
        match = _ATX.fullmatch(line.text) if line.fence is None and not line.edge else None
        if match is not None:
            words = plain(match["text"] or "")
            anchor = _anchor(words, used)
            found.append(Heading(level=len(match["marks"]), text=words, anchor=anchor, line=line.number))
    return tuple(found)


def plain(text: str) -> str:
    """Inline Markdown as a reader sees it."""
    text = _LINK.sub(lambda match: match["text"], text.strip())
    return re.sub(r"\s+", " ", re.sub(r"`|\*+|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)", "", text))


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


def sections(text: str) -> tuple[Section, ...]:
    """The document, cut at its headings; what stands above the first one belongs to none."""
    lines = text.splitlines()
    marks = headings(text)
    ends = [heading.line - 1 for heading in marks[1:]] + [len(lines)]
    return tuple(
        _section(heading, lines[heading.line : end]) for heading, end in zip(marks, ends, strict=True)
    )


def _section(heading: Heading, lines: list[str]) -> Section:
    body = "\n".join(line.rstrip() for line in lines).strip("\n")
    return Section(heading=heading, body=body, sha256=hashlib.sha256(body.encode()).hexdigest())


def links(text: str) -> tuple[Link, ...]:
    """The relative links, code left out: files beside the document, and its own anchors."""
    return tuple(
        Link(text=match["text"], target=match["target"], line=line.number)
        for line in _lines(text)
        if line.fence is None and not line.edge
        for match in _LINK.finditer(_without_code(line.text))
        if not _SCHEME.match(match["target"])
    )


def _without_code(line: str) -> str:
    """Code spans may hold brackets; one around a link's whole text is its text."""
    return _CODE.sub(lambda match: re.sub(r"[\[\]()]", " ", match[0]), line)


def code_blocks(text: str, language: str) -> tuple[CodeBlock, ...]:
    """The fenced blocks of one language, as printed."""
    blocks: list[CodeBlock] = []
    body: list[_Line] | None = None
    for line in _lines(text):
        if line.edge and body is None:
            body = []
        elif line.edge or line.fence is None:
            blocks += _block(body)
            body = None
        elif body is not None:
            body.append(line)
    return tuple(block for block in [*blocks, *_block(body)] if block.language == language)


def _block(lines: list[_Line] | None) -> list[CodeBlock]:
    if not lines:
        return []
    info = (lines[0].fence or "").split()
    words = "".join(f"{line.text}\n" for line in lines)
    return [CodeBlock(language=info[0] if info else "", text=words, line=lines[0].number)]
