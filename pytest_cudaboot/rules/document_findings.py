"""What a rule finds in a document: two places that do not go together, each with its words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from pytest_cudaboot.rules.document import Document, parse
from pytest_cudaboot.rules.document_items import Item, items
from pytest_cudaboot.rules.document_tree import Tree

WIDTH = 160
LONGEST = 4000  # characters
# What was, holds for some versions only, or is an example, is not said of today.
HISTORY = re.compile(
    r"\b(?:was|were|used to|formerly|no longer|until|since|before|older|earlier|up to|for example|e\.g)\b",
    re.IGNORECASE,
)
CODE = re.compile(r"`([^`]+)`")
VARIABLE = re.compile(r"(?<![\w-])\$?\{?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where something stands; line 0 is a file as a whole, or one that is not there."""

    file: str
    line: int
    words: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        words = self.words if len(self.words) <= WIDTH else self.words[: WIDTH - 1] + "…"
        return f"{where}: {words}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A contradiction: what is wrong, and both places."""

    rule: str
    problem: str
    here: Place
    there: Place

    def __str__(self) -> str:
        return f"{self.rule}: {self.problem}\n  {self.here}\n  {self.there}"

    def to_json(self) -> dict[str, str]:
        return {"rule": self.rule, "problem": self.problem, "here": str(self.here), "there": str(self.there)}


@dataclass(frozen=True)
class Reading:
    """A document as the rules look at it.

    :param name: of its file, as the findings say it.
    :param folder: of its file, relative to the tree's root.
    """

    name: str
    text: str
    folder: str = "."

    @cached_property
    def document(self) -> Document:
        return parse(self.text)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The checkable parts, but for those that are too long to be a sentence or a command of anybody's."""
        return tuple(item for item in items(self.text) if len(item.text) <= LONGEST)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def heading(self, item: Item) -> str:
        """The words of the heading above an item."""
        return next((h.text for h in self.document.headings if h.anchor == item.anchor), "")

    def place(self, item: Item, words: str | None = None) -> Place:
        """Where an item stands, or some words of it: an item may be several lines long."""
        line = item.line
        if words:
            following = range(item.line, min(item.line + 12, len(self.lines) + 1))
            line = next((number for number in following if words in self.lines[number - 1]), item.line)
        return Place(file=self.name, line=line, words=self.lines[line - 1].strip())


Rule = Callable[[Reading, Tree], Iterator[Finding]]


def codes(text: str) -> list[str]:
    """What stands in backticks."""
    return CODE.findall(text)


def variables(text: str) -> list[str]:
    """Names of environment variables, as they are written everywhere: capitals and underscores."""
    return VARIABLE.findall(text)
