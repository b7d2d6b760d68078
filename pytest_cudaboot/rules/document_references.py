"""References of a document that lead nowhere: links, sections, lines of files, pins, variables. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from pytest_cudaboot.rules.document import Link, headings
from pytest_cudaboot.rules.document_findings import (
    CODE,
    Finding,
    Place,
    Reading,
    codes,
    variables,
)
from pytest_cudaboot.rules.document_items import COMMAND, Item
from pytest_cudaboot.rules.document_tree import SOURCES, Tree

TELLING = 4  # characters: shorter words stand everywhere
AROUND = 2  # lines: a reference may be this far off before it misleads
# What others read: the driver, the loader, the shell, XLA and its callers, compilers.
FOREIGN = re.compile(
    r"(?:CUDA|NVIDIA|XLA|TF|JAX|HIP|ROCR|LD|OMP|PYTHON|CMAKE|NCCL|CUDNN|PIP|VIRTUAL|XDG|LC)_\w+|PATH|HOME"
)
_LINE = re.compile(r"\b((?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w*):(\d+)\b")
_SECTION = re.compile(r"§\s?(\d+(?:\.\d+)*)")
_PIN = re.compile(r"\b([A-Za-z][\w.-]*?)\s*(==|>=)\s*([0-9]\w*(?:\.\w+)*)")
_UNREAD = re.compile(r"\b(?:never|not|no|neither|nor|without)\b", re.IGNORECASE)


def links(reading: Reading, tree: Tree) -> Iterator[Finding]:
    """A relative link whose file, anchor or section is not there."""
    own = {_plain(heading.anchor) for heading in reading.document.headings}
    for link in reading.document.links:
        file, _, anchor = link.target.partition("#")
        here = Place(file=reading.name, line=link.line, words=f"[{link.text}]({link.target})")
        if not file:
            if _plain(anchor) not in own:
                there = Place(file=reading.name, line=0, words=f"has no heading #{anchor}")
                yield Finding(rule="links", problem=f"no heading #{anchor}", here=here, there=there)
            continue
        target = posixpath.normpath(posixpath.join(reading.folder, file))
        if not (tree.root / target).exists():
            yield Finding(
                rule="links",
                problem=f"{file} is not there",
                here=here,
                there=Place(file=target, line=0, words="no such file"),
            )
        elif target in tree.names and target.endswith(".md"):
            yield from _inside(link, anchor, here, target, tree)


def _inside(link: Link, anchor: str, here: Place, target: str, tree: Tree) -> Iterator[Finding]:
    there = headings(tree.text(target))
    if anchor and _plain(anchor) not in {_plain(heading.anchor) for heading in there}:
        lacking = Place(file=target, line=0, words=f"has no heading #{anchor}")
        yield Finding(rule="links", problem=f"no heading #{anchor} in {target}", here=here, there=lacking)
    for number in _sections(link.after):
        if not any(re.match(rf"(?:§|step\s|section\s)?\s*{number}\b", h.text, re.IGNORECASE) for h in there):
            lacking = Place(file=target, line=0, words=f"has no section {number}")
            yield Finding(rule="links", problem=f"no §{number} in {target}", here=here, there=lacking)


def _sections(after: str) -> list[str]:
    """The sections named right behind a link: `§2 and §4`."""
    match = re.match(r"\s*(?:§\s?[\d.]+(?:\s*(?:,|and|&)\s*)?)+", after)
    return _SECTION.findall(match[0]) if match else []


def _plain(anchor: str) -> str:
    """GitHub keeps the selectors that make a sign an emoji; who writes the link may not."""
    return anchor.replace("\ufe0f", "")


def line_references(reading: Reading, tree: Tree) -> Iterator[Finding]:
    """`File.ext:123`: the file is there, has that line, and the line has what the sentence speaks of."""
    for item in reading.items:
        for match in _LINE.finditer(item.text):
            problem = _held(item, match, tree)
            if problem is not None:
                here, there = reading.place(item, match[0]), problem
                yield Finding(
                    rule="line-references", problem=f"{match[0]} does not hold", here=here, there=there
                )


def _held(item: Item, match: re.Match[str], tree: Tree) -> Place | None:
    """What stands there instead, or None if the reference holds."""
    name, number = tree.find(match[1]), int(match[2])
    if name is None:
        return Place(file=match[1], line=0, words="no such file in the tree")
    lines = tree.text(name).splitlines()
    if number > len(lines):
        return Place(file=name, line=0, words=f"has {len(lines)} lines")
    near = "\n".join(lines[max(0, number - 1 - AROUND) : number + AROUND])
    wanted = [
        part for code in codes(item.text) if code not in match[0] and ":" not in code for part in _parts(code)
    ]
    if not wanted or any(re.search(rf"(?<!\w){re.escape(part)}(?!\w)", near) for part in wanted):
        return None
    return Place(file=name, line=number, words=lines[number - 1].strip() or "(an empty line)")


def _parts(code: str) -> list[str]:
    """The names in a code span."""
    return [part for part in re.split(r"[^\w-]+", code) if len(part) >= TELLING]


def pins(reading: Reading, tree: Tree) -> Iterator[Finding]:
    """One package, two pins of the same kind: here and in requirements or a linked document."""
    own = {
        (found[0], found[1]): (found[2], item) for item in reading.items for found in _PIN.findall(item.text)
    }
    beside = {
        posixpath.normpath(posixpath.join(reading.folder, link.target.partition("#")[0]))
        for link in reading.document.links
    }
    for name in tree.names:
        if name in beside or re.search(r"(?:^|/)requirements[\w.-]*\.txt$", name):
            for number, line in enumerate(tree.text(name).splitlines(), 1):
                for package, relation, version in _PIN.findall(line):
                    mine = own.get((package, relation))
                    if mine is not None and mine[0] != version:
                        yield Finding(
                            rule="pins",
                            problem=f"{package}{relation}{mine[0]}, and {relation}{version}",
                            here=reading.place(mine[1], mine[0]),
                            there=Place(file=name, line=number, words=line.strip()),
                        )


def unread_variables(reading: Reading, tree: Tree) -> Iterator[Finding]:
    """A variable that the document has somebody set, and that no source of the tree names.

    Where the sources name none of them, they are not the sources of this document, and nothing is said.
    """
    told = _told(reading)
    sources = tree.of(SOURCES)
    unread = [name for name in told if next(tree.mentions(name, sources), None) is None]
    if len(unread) == len(told):
        return
    for name in unread:
        there = Place(file=".", line=0, words=f"none of {len(sources)} sources names {name}")
        yield Finding(
            rule="unread-variables",
            problem=f"nothing reads {name}",
            here=reading.place(told[name], name),
            there=there,
        )


def _told(reading: Reading) -> dict[str, Item]:
    """Variables of the project, where they are first set or named, but for those that the document's own lines use."""
    used = {
        name
        for item in reading.items
        if item.kind == COMMAND
        for name in re.findall(r"\$\{?(\w+)", item.text)
    }
    first: dict[str, Item] = {}
    for item in reading.items:
        said = item.text if item.kind == COMMAND else " ".join(CODE.findall(item.text))
        denied = item.kind != COMMAND and _UNREAD.search(item.text)
        for name in variables(said):
            if not (denied or name in used or FOREIGN.fullmatch(name) or _constant(name, reading)):
                first.setdefault(name, item)
    return first


def _constant(name: str, reading: Reading) -> bool:
    """A name that is nowhere set or used is a constant of some source, and no variable."""
    return not re.search(rf"(?<![\w-]){name}=|\$\{{?{name}\b", reading.text)
