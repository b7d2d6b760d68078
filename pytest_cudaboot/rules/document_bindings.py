"""What specs remember of a document: a hash for each sentence that they encode, never its text. Pure but for its file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from pytest_cudaboot.errors import CatalogError, DocumentError
from pytest_cudaboot.rules.document_items import HASH_LENGTH, ITEM_KINDS, REQUIRED, Item
from pytest_cudaboot.rules.tables import parse_toml, read_bytes

BINDINGS = "cudaboot-document.toml"
BOUND, DRIFTED, UNCOVERED, FREE = "bound", "drifted", "uncovered", "free"
FAMILIAR = 0.25  # of the entries: what is known of less is another document
_HEAD = """\
# What the gate's specs encode of {name}: for each command, documented message and sentence the hash of its text, and
# the specs. `cudaboot doc review` writes this file; the document's text is not in it.
"""

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One sentence as it was when somebody last looked: its kind and heading's anchor, its hash, its specs."""

    kind: str
    anchor: str
    sha: str
    specs: tuple[str, ...]

    @property
    def key(self) -> Key:
        return self.anchor, self.sha


@dataclass(frozen=True, kw_only=True, slots=True)
class Bindings:
    """All entries, in the order of the document; `path` is null where nothing is remembered."""

    path: Path | None = None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """An item of today's document and what is remembered of it."""

    item: Item
    state: str
    specs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Review:
    """A document against what is remembered of it.

    :param vanished: what was remembered and is not there any more, in no other words either.
    :param unknown: specs that are named and that the catalogue does not have.
    """

    states: tuple[State, ...]
    vanished: tuple[Entry, ...] = ()
    unknown: tuple[str, ...] = ()

    def in_state(self, state: str) -> tuple[State, ...]:
        return tuple(found for found in self.states if found.state == state)

    @property
    def drifted(self) -> tuple[str, ...]:
        """Specs that encode a text which has changed, or of which a part has gone."""
        changed = [spec for found in self.in_state(DRIFTED) for spec in found.specs]
        thinner = [spec for entry in self.vanished for spec in entry.specs if spec not in self.orphans]
        return tuple(dict.fromkeys([*changed, *thinner]))

    @property
    def orphans(self) -> tuple[str, ...]:
        """Specs of whose text nothing is left."""
        left = {spec for found in self.states for spec in found.specs}
        gone = [spec for entry in self.vanished for spec in entry.specs if spec not in left]
        return tuple(dict.fromkeys(gone))

    def percent(self, kind: str | None = None) -> float:
        """How much of the document some spec encodes."""
        kinds = REQUIRED if kind is None else (kind,)
        wanted = [found for found in self.states if found.item.kind in kinds]
        covered = [found for found in wanted if found.state != UNCOVERED]
        return 100.0 * len(covered) / len(wanted) if wanted else 100.0


def load_bindings(path: Path) -> Bindings:
    """Read what is remembered.

    :raises DocumentError: for a file that is malformed; the message names the key.
    """
    try:
        data = parse_toml(read_bytes(path), path)
    except CatalogError as error:
        raise DocumentError(str(error)) from error
    sections = data.get("sections", {})
    if not isinstance(sections, dict):
        raise DocumentError(f"{path}: sections: {sections!r} is no table of headings")
    entries = [
        _entry(path, anchor, key, specs)
        for anchor, table in sections.items()
        for key, specs in _table(path, anchor, table).items()
    ]
    return Bindings(path=path, entries=tuple(entries))


def _table(path: Path, anchor: str, table: object) -> Mapping[str, object]:
    if not isinstance(table, dict):
        raise DocumentError(f"{path}: sections.{anchor}: {table!r} is no table of hashes")
    return table


def _entry(path: Path, anchor: str, key: str, specs: object) -> Entry:
    kind, _, sha = key.partition(" ")
    if kind not in ITEM_KINDS or len(sha) != HASH_LENGTH:
        raise DocumentError(f"{path}: {key!r} is not a hash behind one of {', '.join(ITEM_KINDS)}")
    if not isinstance(specs, list) or not all(isinstance(spec, str) for spec in specs):
        raise DocumentError(f"{path}: {key!r}: {specs!r} is no list of specs")
    return Entry(kind=kind, anchor=anchor, sha=sha, specs=tuple(specs))


def closest(candidates: Iterable[Path], items: Sequence[Item]) -> Bindings:
    """Of several files the one that knows most of this document; none if that is little.

    Two documents of one kind share lines, and are not the same for that.
    """
    present = {item.key for item in items}
    loaded = [Bindings(), *(load_bindings(path) for path in candidates)]
    best = max(loaded, key=lambda known: _known(known, present))
    return best if _known(best, present) >= FAMILIAR else Bindings()


def _known(known: Bindings, present: Collection[Key]) -> float:
    """Which part of the entries the document has, word by word."""
    there = sum(entry.key in present for entry in known.entries)
    return there / len(known.entries) if known.entries else 0.0


def compare(
    items: Sequence[Item],
    known: Bindings,
    *,
    catalog: Collection[str],
    quoted: Mapping[Key, tuple[str, ...]] | None = None,
) -> Review:
    """Hold a document against what is remembered of it.

    A sentence that only moved is the same. One that stands in the place of another under its heading is that one in
    other words.

    :param quoted: specs whose tests quote an item, by the item's key.
    """
    pairs, vanished = _pair(items, known.entries)
    states = [_state(item, pairs.get(item.key), (quoted or {}).get(item.key, ())) for item in items]
    named = [*(spec for found in states for spec in found.specs), *(s for e in vanished for s in e.specs)]
    unknown = dict.fromkeys(spec for spec in named if spec not in catalog)
    return Review(states=tuple(states), vanished=tuple(vanished), unknown=tuple(unknown))


def _state(item: Item, entry: Entry | None, quoting: tuple[str, ...]) -> State:
    remembered = entry.specs if entry is not None else ()
    specs = tuple(dict.fromkeys([*remembered, *quoting]))
    changed = bool(remembered) and entry is not None and entry.sha != item.sha
    unbound = UNCOVERED if item.kind in REQUIRED else FREE
    state = DRIFTED if changed else BOUND if specs else unbound
    return State(item=item, state=state, specs=specs)


@dataclass(slots=True)
class _Side:
    """What only one side has, by heading and kind, in its order."""

    hashes: dict[Key, list[str]] = field(default_factory=dict)

    def add(self, anchor: str, kind: str, sha: str) -> None:
        self.hashes.setdefault((anchor, kind), []).append(sha)


def _pair(items: Sequence[Item], entries: Sequence[Entry]) -> tuple[dict[Key, Entry], list[Entry]]:
    """For each item what is remembered of it, and what is remembered of nothing that is there."""
    exact = {entry.key: entry for entry in entries}
    anywhere = {entry.sha: entry for entry in entries}
    pairs: dict[Key, Entry] = {}
    for item in items:
        entry = exact.get(item.key) or anywhere.get(item.sha)
        if entry is not None:
            pairs[item.key] = entry
    there = {entry.sha for entry in pairs.values()}
    edited = _edited(items, [entry for entry in entries if entry.sha not in there], entries)
    pairs.update(edited)
    taken = {entry.key for entry in edited.values()}
    gone = [entry for entry in entries if entry.sha not in there and entry.key not in taken]
    return pairs, gone


def _edited(items: Sequence[Item], missing: Sequence[Entry], entries: Sequence[Entry]) -> dict[Key, Entry]:
    """Pairs of an item and what stood in its place, heading by heading and kind by kind."""
    pairs: dict[Key, Entry] = {}
    lost = {entry.key: entry for entry in missing}
    for anchor, kind in dict.fromkeys((entry.anchor, entry.kind) for entry in missing):
        before = [entry.sha for entry in entries if (entry.anchor, entry.kind) == (anchor, kind)]
        now = [item.sha for item in items if (item.anchor, item.kind) == (anchor, kind)]
        for tag, old, old_end, new, new_end in SequenceMatcher(
            None, before, now, autojunk=False
        ).get_opcodes():
            if tag == "replace":
                for was, sha in zip(before[old:old_end], now[new:new_end], strict=False):
                    if (anchor, was) in lost:
                        pairs[anchor, sha] = lost[anchor, was]
    return pairs


def dumps(name: str, states: Sequence[State]) -> str:
    """The file for a document as it stands now, with the specs that it was bound to."""
    lines = [_HEAD.format(name=name), f"document = {json.dumps(name)}\n"]
    sections: dict[str, dict[str, tuple[str, ...]]] = {}
    for found in states:
        key = f"{found.item.kind} {found.item.sha}"
        sections.setdefault(found.item.anchor, {})[key] = found.specs
    for anchor, table in sections.items():
        lines.append(f"\n[sections.{json.dumps(anchor, ensure_ascii=False)}]\n")
        lines += [f'"{key}" = {json.dumps(list(specs))}\n' for key, specs in table.items()]
    return "".join(lines)
