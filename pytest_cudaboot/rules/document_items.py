"""The checkable parts of a document: commands, warnings, claims with figures, documented messages. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_cudaboot.rules.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_cudaboot.rules.document import CodeBlock, Sentence

COMMAND, WARNING, CLAIM, OUTPUT, PROSE = "command", "warning", "claim", "output", "prose"
# Each of these must be bound to a spec; other sentences may be.
REQUIRED = (COMMAND, WARNING, CLAIM, OUTPUT)
ITEM_KINDS = (*REQUIRED, PROSE)
SHELLS = ("bash", "sh", "shell", "zsh")
SESSIONS = ("", "console", "text", "shell-session")
HASH_LENGTH = 16
_PROMPT = re.compile(r"\$ +")
# "Do not" warns where it commands, at the beginning of a clause, and not in "they do not know".
_WARNING = re.compile(
    r"⚠|\bgotcha|(?:^|[—;:,(.!]\s*|\b(?:and|so|but)\s+)(?:do not|don't)\b|\b(?:must not|beware|caution)\b|^warning\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"⚠|\bgotcha\b", re.IGNORECASE)
_MESSAGE = re.compile(r"\b(?:error|undefined|cannot|missing|failed|not found|refused)\b", re.IGNORECASE)
_COUNTED = (
    r"(?:zero|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand)"
    r"(?: [\w-]+)? (?:cards?|GPUs?|devices|boxes|processes|replicas|steps|seconds|minutes|hours|days|epochs"
    r"|lines|symbols|times|percent|changes)\b"
)
# A figure stands by itself, with or without a unit; a digit inside a name is none, and neither is a reference.
_FIGURE = re.compile(
    rf"(?<![\w#§./-])[~±]?v?\d+(?:[.,]\d+)*(?:rc\d+)?(?:\+|(?=$|\W|x\b|[kMG]i?B\b|ms\b|s\b))|\bsm_\d+|\b{_COUNTED}",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\b(?:step|steps|section|issue)s? \d+(?:\s*(?:,|and|to|-)\s*\d+)*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """Something in the document that a spec can encode.

    :param text: on one line.
    :param sha: hash of the text, so that a copy of the document need not be kept.
    :param group: number of its paragraph, or of its block, counted from -1 down.
    """

    kind: str
    anchor: str
    line: int
    text: str
    sha: str
    group: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return self.anchor, self.sha


def items(text: str) -> tuple[Item, ...]:
    """Everything checkable, in the document's order."""
    document = parse(text)
    found = list(_prose(document.sentences))
    for number, block in enumerate(document.blocks, 1):
        if block.language in SHELLS:
            found += [replace(item, group=-number) for item in commands(block)]
        elif block.language in SESSIONS:
            found += [replace(item, group=-number) for item in _session(block)]
    return tuple(sorted(found, key=lambda item: item.line))


def has_figure(text: str) -> bool:
    """Whether a sentence holds a number, a ratio or a version."""
    return _FIGURE.search(_REFERENCE.sub(" ", text)) is not None


def is_warning(text: str) -> bool:
    """Whether the words warn by themselves."""
    return _WARNING.search(text) is not None


def digest(text: str) -> str:
    """What is remembered of a text: blanks count once."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:HASH_LENGTH]


def commands(block: CodeBlock) -> Iterator[Item]:
    """Each command with its comments; a comment that warns stands for itself."""
    pending: list[str] = []
    line = block.line
    for number, text in _logical_lines(block):
        comment = text.lstrip().startswith("#")
        if comment and is_warning(text.lstrip("# ")):
            yield _item(WARNING, block.anchor, number, text.lstrip("# "))
        elif comment or not text.strip():
            pending += [text] if comment else []
        else:
            if any(not words.lstrip().startswith("#") for words in pending):
                yield _item(COMMAND, block.anchor, line, " ".join(pending))
                pending = []
            pending.append(text)
            line = number
    if pending:
        yield _item(COMMAND, block.anchor, line, " ".join(pending))


def _logical_lines(block: CodeBlock) -> Iterator[tuple[int, str]]:
    """Lines, where a backslash at the end goes on."""
    begun, first = "", block.line
    for number, text in enumerate(block.text.splitlines(), block.line):
        first = first if begun else number
        begun += text
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        yield first, begun
        begun = ""
    if begun:
        yield first, begun


def _session(block: CodeBlock) -> Iterator[Item]:
    """What a terminal shows: commands behind a prompt, and what they print; a drawing is neither."""
    for number, text in enumerate(block.text.splitlines(), block.line):
        if _PROMPT.match(text):
            yield _item(COMMAND, block.anchor, number, _PROMPT.sub("", text, count=1))
        elif _MESSAGE.search(text) or has_figure(text):
            yield _item(OUTPUT, block.anchor, number, text)


def _prose(sentences: tuple[Sentence, ...]) -> Iterator[Item]:
    """A paragraph that begins with a mark or a label of a warning is one as a whole, and so is a block quote."""
    openings: dict[int, str] = {}
    for told in sentences:
        opening = openings.setdefault(told.paragraph, told.text)
        if told.quoted or _LABEL.search(opening) or is_warning(told.text):
            yield _item(WARNING, told.anchor, told.line, told.text, told.paragraph)
        elif not told.heading:
            kind = CLAIM if has_figure(told.text) else PROSE
            yield _item(kind, told.anchor, told.line, told.text, told.paragraph)


def _item(kind: str, anchor: str, line: int, text: str, group: int = 0) -> Item:
    words = " ".join(text.split())
    return Item(kind=kind, anchor=anchor, line=line, text=words, sha=digest(words), group=group)
