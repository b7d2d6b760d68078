"""Figures of a document that can not all be true: versions, numbers of cards, lists of devices, arithmetic. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pytest_cudaboot.rules.document_findings import HISTORY, Finding, Place, Reading, codes
from pytest_cudaboot.rules.document_items import Item
from pytest_cudaboot.rules.document_tree import SCRIPTS, Tree

TOOLS = {
    "Lean": r"\b(?:lean|elan|lean4)\b",
    "IREE": r"\biree\b",
    "Python": r"\bpython\b",
    "CUDA": r"\bcuda\b",
    "the driver": r"\bdriver\b",
    "gcc": r"\bgcc\b",
    "JAX": r"\bjax\b",
}
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
GIB = 2**30
GB_IN_GIB = 10**9 / GIB
ROUNDED = 0.005  # half a percentage point
NEAR = 0.05  # a percentage and a fraction this close are meant to be one thing
LOOSE = 0.01  # relative: what rounding may do to a product
# Bounds (`>=1.2.3`, `1.2.3+`) and ranges say nothing of the version in use.
_FULL = re.compile(r"(?<![\w.<>=~+-])v?(\d+\.\d+\.\d+(?:rc\d+)?)(?!\w|\+|[.-]\w)")
_COUNT = re.compile(
    rf"\b(\d+|{'|'.join(NUMBERS)})\s*(?:[\u00d7x]\s*)?(?:[\w-]+ ){{0,2}}(?:cards|GPUs)\b"
    r"|\b(\d+)\s*[\u00d7x]\s*(?:(?:NVIDIA|RTX|GTX|Tesla)\s+)*[A-Z]{0,2}\d{2,4}\b",
    re.IGNORECASE,
)
_BOX = re.compile(r"\b(?:box|machine|host|server|workstation|rig|node)\b", re.IGNORECASE)
_LIST = re.compile(r"VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)+)")
_TESTS = re.compile(r"(?:^|/)(?:tests?/|test_[^/]*$)")  # what tests plant says nothing of the project's box
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?GiB \((\d+) bytes\)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_FRACTION = re.compile(r"\w*fraction`?\s*(?:=|of|is)?\s*`?(0?\.\d+)", re.IGNORECASE)
_TOTAL = re.compile(r"(?<![\d.])(\d+) ?(GB|GiB)\b")
_PART = re.compile(r"\b(\d+\.\d+) ?GiB\b")


def versions(reading: Reading, tree: Tree) -> Iterator[Finding]:
    """One tool, two versions in use; the pin of a checkout is a mention too."""
    found = [*_mentioned(reading), *_pinned(tree)]
    for tool in dict.fromkeys(tool for tool, _, _ in found):
        first: dict[str, Place] = {}
        for _, version, place in (mention for mention in found if mention[0] == tool):
            first.setdefault(version, place)
        (version, here), *others = first.items()
        for other, there in others:
            yield Finding(
                rule="versions", problem=f"{tool} is {version}, and is {other}", here=here, there=there
            )


def _mentioned(reading: Reading) -> Iterator[tuple[str, str, Place]]:
    for item in reading.items:
        told = {match[1]: match for match in _FULL.finditer(item.text)}
        if len(told) == 1 and not HISTORY.search(item.text):
            ((version, match),) = told.items()
            tool = _nearest(item.text, match.start())
            if tool is not None:
                yield tool, version, reading.place(item, version)


def _nearest(text: str, place: int) -> str | None:
    """The tool whose name stands closest to a place of a sentence."""
    distances = [
        (min(abs(match.start() - place), abs(match.end() - place)), tool)
        for tool, names in TOOLS.items()
        for match in re.finditer(names, text, re.IGNORECASE)
    ]
    return min(distances)[1] if distances else None


def _pinned(tree: Tree) -> Iterator[tuple[str, str, Place]]:
    if "lean-toolchain" in tree.names:
        words = tree.text("lean-toolchain").strip()
        match = re.search(r"v?(\d+\.\d+\.\d+)", words)
        if match:
            yield "Lean", match[1], Place(file="lean-toolchain", line=1, words=words)


def card_counts(reading: Reading, _: Tree) -> Iterator[Finding]:
    """One box, two numbers of cards."""
    first: dict[int, Place] = {}
    for item in reading.items:
        if _BOX.search(item.text) and not HISTORY.search(item.text):
            for match in _COUNT.finditer(item.text):
                word = match[1] or match[2]
                first.setdefault(NUMBERS.get(word.lower()) or int(word), reading.place(item, match[0]))
    if first:
        (count, here), *others = first.items()
        for other, there in others:
            problem = f"the box has {count} cards, and has {other}"
            yield Finding(rule="card-counts", problem=problem, here=here, there=there)


def device_lists(reading: Reading, tree: Tree) -> Iterator[Finding]:
    """Two lists of devices, in the document or in the scripts of its tree."""
    first: dict[str, Place] = {}
    for item in reading.items:
        spans = [code for code in codes(item.text) if re.fullmatch(r"\d+(?:,\d+)+", code)]
        for found in [*_LIST.findall(item.text), *spans]:
            first.setdefault(found, reading.place(item, found))
    for name in (name for name in tree.of(SCRIPTS) if not _TESTS.search(name)):
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            for found in _LIST.findall(line):
                first.setdefault(found, Place(file=name, line=number, words=line.strip()))
    if first:
        (devices, here), *others = first.items()
        for other, there in others:
            problem = f"the devices are {devices}, and are {other}"
            yield Finding(rule="device-lists", problem=problem, here=here, there=there)


def arithmetic(reading: Reading, _: Tree) -> Iterator[Finding]:
    """Sizes that are not their bytes, shares that are not their fraction, products that are not their factors'."""
    amounts = _amounts(reading)
    for item in reading.items:
        yield from _sizes(reading, item)
        yield from _products(reading, item)
        yield from _shares(reading, item, amounts)
    groups: dict[int, list[Item]] = {}
    for item in reading.items:
        groups.setdefault(item.group, []).append(item)
    for group in groups.values():
        yield from _fractions(reading, group)


def _sizes(reading: Reading, item: Item) -> Iterator[Finding]:
    for size, count in _SIZE.findall(item.text):
        decimals = len(size.partition(".")[2])
        really = f"{int(count) / GIB:.{decimals}f}"
        if really != size:
            place = reading.place(item, size)
            yield _sum(f"{count} bytes are {really} GiB, not {size}", place, reading.place(item, count))


def _fractions(reading: Reading, group: list[Item]) -> Iterator[Finding]:
    """In one paragraph a percentage and a fraction that are nearly the same are meant to be the same."""
    fractions = [(item, match[1]) for item in group for match in _FRACTION.finditer(item.text)]
    for item in group:
        for match in _PERCENT.finditer(item.text):
            for other, fraction in fractions:
                apart = abs(float(match[1]) / 100 - float(fraction))
                if ROUNDED < apart <= NEAR:
                    here, there = reading.place(item, match[0]), reading.place(other, fraction)
                    yield _sum(f"{match[1]} % is not {fraction}", here, there)


def _products(reading: Reading, item: Item) -> Iterator[Finding]:
    """A fraction of a whole is its part, be the whole in GB or in GiB."""
    fraction, total, part = (found.search(item.text) for found in (_FRACTION, _TOTAL, _PART))
    if fraction and total and part:
        product, said = float(fraction[1]) * int(total[1]), float(part[1])
        if all(abs(product * unit - said) > LOOSE * said for unit in (1, GB_IN_GIB)):
            either = f"{product:g} GiB or {product * GB_IN_GIB:.2f} GiB"
            problem = f"{fraction[1]} of {total[0]} is {either}, not {part[0]}"
            yield _sum(problem, reading.place(item, total[0]), reading.place(item, part[0]))


def _amounts(reading: Reading) -> dict[float, Item]:
    """Each amount of memory that the document has, and where it has it first."""
    found: dict[float, Item] = {}
    for item in reading.items:
        totals = [total for total, _ in _TOTAL.findall(item.text)]
        for amount in (*_PART.findall(item.text), *totals):
            found.setdefault(float(amount), item)
    return found


def _shares(reading: Reading, item: Item, amounts: Mapping[float, Item]) -> Iterator[Finding]:
    """A share of something must be a share of some amount that the document has."""
    part, percent = _PART.search(item.text), re.search(r"(\d+) ?% of\b", item.text)
    if not (part and percent):
        return
    said = int(percent[1])
    shares = {whole: 100 * float(part[1]) / whole for whole in amounts if whole > float(part[1])}
    if shares and all(round(share) != said for share in shares.values()):
        whole = min(shares, key=lambda whole: abs(shares[whole] - said))
        problem = f"{part[1]} GiB is {shares[whole]:.0f} % of {whole:g} GiB, and {said} % of nothing here"
        yield _sum(problem, reading.place(item, percent[0]), reading.place(amounts[whole], f"{whole:g}"))


def _sum(problem: str, here: Place, there: Place) -> Finding:
    return Finding(rule="arithmetic", problem=problem, here=here, there=there)
