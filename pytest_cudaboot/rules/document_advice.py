"""Advice and claims of a document that its own other sentences undo. Pure; general words, no sentence by heart."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_cudaboot.rules.document_findings import Finding, Place, Reading, codes, variables
from pytest_cudaboot.rules.document_items import COMMAND, Item
from pytest_cudaboot.rules.document_tree import SOURCES, Tree

LOWERERS = {"xla": re.compile(r"\b(?:XLA|PJRT)\b"), "iree": re.compile(r"\bIREE|\bvmfbs?\b|\.vmfb\b")}
_DEFAULT = re.compile(r"\bdefault lowerer\b|\bruns by default\b|\blowerer by default\b", re.IGNORECASE)
_SELECTOR = re.compile(r"\b\w+_LOWERER\w*=(?P<value>\S+)")
_PROGRAM = re.compile(r"(?:^|\s)\.{1,2}/\S+|(?:^|\s)\.\w+/\S+/\S+")
_UNSET = re.compile(
    r"\bleave `?(\w+)`? unset\b|\bdo not set `?(\w+)`?|\bkeep `?(\w+)`? unset\b", re.IGNORECASE
)
_TARGET = re.compile(r"\bsm_(\d+)\b")
_TABLE = re.compile(r"([\w /.-]*\w) = `?sm_(\d+)`?")
_NEEDED = re.compile(r"\b(?:needs?|must|requires?|set)\b", re.IGNORECASE)
_ONE = re.compile(
    r"\b(?:through|by|via|with) (?:one|a single) (?:var|variable|switch|knob|setting)\b", re.IGNORECASE
)
_DEPENDS = r"\b{noun}\b.*?\b(?:unless|if|when)\b.*?`(-D\w+)`"
_ALL = re.compile(r"\b(?:every|all|each)\b[^.;]*\b(?:number|figure|measurement|timing)s?\b", re.IGNORECASE)
_EXCEPT = re.compile(r"\b(?:unless|except|apart|otherwise|but)\b", re.IGNORECASE)
_TIME = re.compile(r"\d\s*(?:min|minutes?|s|sec|seconds?|ms|hours?|h)\b")
_ALONE = re.compile(r"\bnothing else\b|\bONLY\b|\bplugin only\b")
_LEFT_OUT = re.compile(r"\b(?:leaves out|does not (?:bring|carry|include)|without the) \b", re.IGNORECASE)
_LIBRARY = re.compile(r"\blib([a-z]{3,})\b")
_REQUIRED = re.compile(r"prerequisit|requirement|before you|you need", re.IGNORECASE)


def unexercised_lowerer(reading: Reading, _: Tree) -> Iterator[Finding]:
    """A command that is said to run one lowerer, while another is the default and nothing picks the first."""
    default = _default(reading)
    if default is None:
        return
    name, said = default
    for other in set(LOWERERS) - {name}:
        picked = False
        for item in (item for item in reading.items if item.kind == COMMAND):
            value = _SELECTOR.search(item.text)
            picked = picked or bool(value and value["value"].strip("\"'") == other)
            if not picked and _meant(item, other, reading):
                problem = f"this is to run {other}, and {name} is the default that nothing changes here"
                yield Finding(
                    rule="unexercised-lowerer",
                    problem=problem,
                    here=reading.place(item),
                    there=reading.place(said),
                )


def _default(reading: Reading) -> tuple[str, Item] | None:
    """The lowerer that runs when nothing is said, by the sentence or by its heading."""
    for item in reading.items:
        if _DEFAULT.search(item.text):
            for text in (item.text, reading.heading(item)):
                named = [name for name, words in LOWERERS.items() if words.search(text)]
                if len(named) == 1:
                    return named[0], item
    return None


def _meant(item: Item, lowerer: str, reading: Reading) -> bool:
    """A program of the project whose comment names the lowerer, or for which the block sets its variables."""
    command, _, comment = item.text.partition("#")
    if not _PROGRAM.search(command):
        return False
    if LOWERERS[lowerer].search(comment):
        return True
    block = [other for other in reading.items if other.group == item.group and other.line < item.line]
    sets = [name for other in block for name in variables(other.text.partition("#")[0])]
    return any(name.startswith(f"{lowerer.upper()}_") for name in sets)


def unset_advice(reading: Reading, _: Tree) -> Iterator[Finding]:
    """Advice to leave a variable unset, against a line that sets it, or hardware whose value lies below the default.

    Code for a target runs on later ones only, so a lower one needs the variable, and the document has to say so.
    """
    advice = _advice(reading)
    for name, said in advice.items():
        for item in reading.items:
            if item.kind == COMMAND and re.search(rf"(?<![\w-]){name}=", item.text.partition("#")[0]):
                problem = f"{name} is to be left unset, and is set"
                yield _found("unset-advice", problem, reading, said, item)
        yield from _below(reading, name, said)


def _advice(reading: Reading) -> dict[str, Item]:
    first: dict[str, Item] = {}
    for item in reading.items:
        for match in _UNSET.finditer(item.text):
            for name in variables(" ".join(word for word in match.groups() if word)):
                first.setdefault(name, item)
    return first


def _below(reading: Reading, name: str, said: Item) -> Iterator[Finding]:
    defaults = [
        item for item in reading.items if "default" in item.text.lower() and _TARGET.search(item.text)
    ]
    if not defaults:
        return
    least = int(_TARGET.findall(defaults[0].text)[0])
    for item in reading.items:
        table = _TABLE.findall(item.text)
        low = [(card, int(target)) for card, target in table if int(target) < least]
        for card, target in low if len(table) > 1 else ():
            if not _excepted(reading, name, target):
                problem = f"{name} is to be left unset, which is sm_{least}, and{_last(card)} is sm_{target}"
                yield _found("unset-advice", problem, reading, said, item)


def _last(card: str) -> str:
    return f" {card.strip().split(',')[-1].split('(')[-1].split(':')[-1].strip()}"


def _excepted(reading: Reading, name: str, target: int) -> bool:
    """Whether the document says that this one has to set it."""
    wanted = f"{name}=sm_{target}"
    return any(wanted in item.text and _NEEDED.search(item.text) for item in reading.items)


def one_variable(reading: Reading, tree: Tree) -> Iterator[Finding]:
    """A claim that one variable decides it all, against another variable or switch for a part of it."""
    for item in reading.items:
        named = variables(" ".join(codes(item.text)))
        claim = _ONE.search(item.text)
        if not (claim and named):
            continue
        sentence = re.split(r"[;:]", item.text[: claim.start()])[-1]
        nouns = [
            part.split()[-1].strip("`.").lower() for part in re.split(r",|\band\b", sentence) if part.split()
        ]
        for noun in nouns:
            yield from _other_variable(reading, tree, item, named[0], noun)
            yield from _other_switch(reading, item, named[0], noun)


def _other_variable(reading: Reading, tree: Tree, item: Item, name: str, noun: str) -> Iterator[Finding]:
    other = f"{name.rpartition('_')[0]}_{noun.upper()}"
    problem = f"{name} is said to be the one variable for the {noun}, and there is {other}"
    said = next((found for found in reading.items if other in variables(found.text)), None)
    if said is not None and other != name:
        yield _found("one-variable", problem, reading, item, said, other)
    elif other != name:
        for file, line, words in tree.mentions(other, tree.of(SOURCES)):
            there = Place(file=file, line=line, words=words)
            yield Finding(rule="one-variable", problem=problem, here=reading.place(item), there=there)
            return


def _other_switch(reading: Reading, item: Item, name: str, noun: str) -> Iterator[Finding]:
    for other in reading.items:
        match = re.search(_DEPENDS.format(noun=re.escape(noun)), other.text, re.IGNORECASE)
        if match is not None and other is not item:
            problem = f"{name} is said to be the one variable for the {noun}, which {match[1]} decides"
            yield _found("one-variable", problem, reading, item, other, match[1])
            return


def every_figure(reading: Reading, _: Tree) -> Iterator[Finding]:
    """A claim that every figure is of one lowerer, against a time of the other."""
    times = [(item, _named(item.text)) for item in reading.items if _TIME.search(item.text)]
    for item in reading.items:
        if not _ALL.search(item.text) or _EXCEPT.search(item.text):
            continue
        named = _named(item.text) or _named(reading.heading(item))
        others = (other for other, whose in times if other is not item and whose and not named & whose)
        other = next(others, None) if len(named) == 1 else None
        if other is not None:
            problem = f"every figure is said to be of {next(iter(named))}, and this one is not"
            yield _found("every-figure", problem, reading, item, other)


def _named(text: str) -> set[str]:
    return {name for name, words in LOWERERS.items() if words.search(text)}


def bare_package(reading: Reading, _: Tree) -> Iterator[Finding]:
    """A library that is required, while what is installed is "nothing else", and no line installs the library."""
    alone = next(
        (item for item in reading.items if _ALONE.search(item.text) and "plugin" in item.text.lower()), None
    )
    if alone is None or any(_LEFT_OUT.search(item.text) for item in reading.items):
        return
    installs = " ".join(
        item.text for item in reading.items if item.kind == COMMAND and "install" in item.text
    )
    for item in reading.items:
        if not _REQUIRED.search(reading.heading(item)):
            continue
        for library in (match[1] for code in codes(item.text) for match in [_LIBRARY.search(code)] if match):
            if library not in installs:
                problem = (
                    f"lib{library} is required, nothing installs it, and the package brings the plugin alone"
                )
                yield _found("bare-package", problem, reading, item, alone)


def _found(
    rule: str, problem: str, reading: Reading, here: Item, there: Item, words: str | None = None
) -> Finding:
    return Finding(rule=rule, problem=problem, here=reading.place(here), there=reading.place(there, words))
