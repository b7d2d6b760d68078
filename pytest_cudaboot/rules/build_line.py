"""The line by which a document builds the XLA shim: found in its text, and held to what only compiles. It runs nothing.

A checkout is not trusted to have written it: whatever would start another program or write elsewhere is refused.
"""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import ProjectError
from pytest_cudaboot.rules.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIM = "libpjrt_ffi.so"
SHIM_LINE = ("gcc", "-fPIC", "-O2", "-shared", "ffi/pjrt_ffi.c", "-ldl", "-o", f"ffi/{SHIM}")
COMPILERS = ("gcc", "cc", "clang")
LANGUAGES = ("bash", "sh", "shell", "console", "")
# `-fplugin`, `-B`, `-specs`, `-wrapper` and `@file` start programs or read more options; `-M`, `-save-temps`, dumps and
# maps write files. None of them is needed to build a shared library from a few sources.
_ALLOWED = re.compile(
    r"-(f(?!plugin|dump|profile|auto|callgraph|stack-usage|diagnostics|opt-info|save|lto)[\w=+-]+"
    r"|O\w*|g\d?|shared|pthread|std=[\w+]+|W(?![apl],)[\w=+-]*|m[\w=.-]+"
    r"|D\w+(=[\w.+-]*)?|U\w+|[IL][\w./+-]+|l[\w.+-]+"
    r"|Wl,(-z,\w+|-rpath,[\w./$-]+|--(start|end)-group|--(no-)?(whole-archive|as-needed|undefined)))"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildLine:
    """A build line.

    :param words: as a shell would hand them over.
    :param found_via: the document and line that it stands in, or that it is the default.
    """

    words: tuple[str, ...]
    found_via: str

    @property
    def sources(self) -> tuple[str, ...]:
        """The translation units, relative to the checkout."""
        return tuple(word for word in self.words if word.endswith(".c"))


def documented_line(text: str, name: str) -> BuildLine | None:
    """The first line of a document that builds the XLA shim; None if there is none.

    :param name: the document's, for messages.
    :raises ProjectError: the line does more than compile the checkout's own sources.
    """
    for number, line in _shell_lines(text):
        try:
            words = tuple(shlex.split(line.removeprefix("$ "), comments=True))
        except ValueError:
            continue  # an unfinished quote: a shell would not run it either
        if _builds_shim(words):
            where = f"{name}:{number}"
            _check(words, where)
            return BuildLine(words=words, found_via=where)
    return None


def _shell_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines of the shell blocks, those joined that a backslash continues."""
    for block in parse(text).blocks:
        if block.language not in LANGUAGES:
            continue
        held, begun = "", block.line
        for number, line in enumerate(block.text.splitlines(), start=block.line):
            begun = number if not held else begun
            held += line.removesuffix("\\")
            if not line.endswith("\\"):
                yield begun, held.strip()
                held = ""


def _builds_shim(words: tuple[str, ...]) -> bool:
    made = next((after for word, after in itertools.pairwise(words) if word == "-o"), "")
    return "-shared" in words and PurePosixPath(made).name == SHIM


def _check(words: tuple[str, ...], where: str) -> None:
    if words[0] not in COMPILERS:
        raise ProjectError(
            f"{where}: the shim's build line begins with {words[0]!r}; a compiler is one of {', '.join(COMPILERS)}"
        )
    place = words.index("-o") + 1
    for index, word in enumerate(words[1:], start=1):
        if index in (place - 1, place) or _ALLOWED.fullmatch(word) or _is_source(word):
            continue
        raise ProjectError(
            f"{where}: the shim's build line has {word!r}; it may hold sources of the checkout, and options "
            "that only compile and link"
        )


def _is_source(word: str) -> bool:
    path = PurePosixPath(word)
    return path.suffix == ".c" and not path.is_absolute() and ".." not in path.parts and word[0] not in "-@"
