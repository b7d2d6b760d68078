"""Which sentences of a document the tests of a suite quote above their checks. It reads the tests, and imports none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_cudaboot.rules.document_items import Item

_QUOTE = re.compile(r"(?:^# > .*\n)+", re.MULTILINE)
_SPEC = re.compile(r"""\bmark\.spec\(\s*["']([\w.-]+)["']""")
_SHORTEST = 6  # characters: less is no quotation
_TELLING = 24  # characters: less may stand in other sentences too


def read_quotes(folder: Path) -> tuple[tuple[str, str], ...]:
    """Pairs of a spec and a quotation: the quotation stands above the spec's mark."""
    found: list[tuple[str, str]] = []
    for path in sorted(folder.glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for quote in _QUOTE.finditer(text):
            mark = _SPEC.search(text, quote.end()) or _SPEC.search(text)
            if mark is not None:
                found.append((mark[1], quote[0].replace("# > ", "")))
    return tuple(found)


def quoted(
    items: Sequence[Item], quotes: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """For each item the specs whose quotation holds it, or stands in it."""
    bare = [(spec, _bare(quote)) for spec, quote in quotes]
    known = [(spec, words) for spec, words in bare if len(words) >= _SHORTEST]
    return {item.key: tuple(dict.fromkeys(_quoting(item, known))) for item in items}


def _quoting(item: Item, quotes: Sequence[tuple[str, str]]) -> list[str]:
    text = _bare(item.text)
    return [
        spec
        for spec, words in quotes
        if words == text
        or (len(words) >= _TELLING and words in text)
        or (len(text) >= _SHORTEST and text in words)
    ]


def _bare(text: str) -> str:
    """Words without marks: Markdown on one side, what a reader sees on the other."""
    return " ".join(re.sub(r"\]\([^)\s]*\)|[\[\]`*_#]", "", text).split())
