"""Every rule by which a document is held against itself and against its tree, by name. Pure."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from pytest_cudaboot.rules import document_advice, document_figures, document_references
from pytest_cudaboot.rules.document import read_document
from pytest_cudaboot.rules.document_findings import Finding, Reading, Rule
from pytest_cudaboot.rules.document_tree import Tree

BESIDE = ("docs", "historical")
RULES: MappingProxyType[str, Rule] = MappingProxyType(
    {
        "versions": document_figures.versions,
        "card-counts": document_figures.card_counts,
        "device-lists": document_figures.device_lists,
        "arithmetic": document_figures.arithmetic,
        "links": document_references.links,
        "line-references": document_references.line_references,
        "pins": document_references.pins,
        "unread-variables": document_references.unread_variables,
        "unexercised-lowerer": document_advice.unexercised_lowerer,
        "unset-advice": document_advice.unset_advice,
        "one-variable": document_advice.one_variable,
        "every-figure": document_advice.every_figure,
        "bare-package": document_advice.bare_package,
    }
)


def reading_of(path: Path, root: Path | None = None) -> tuple[Reading, Tree]:
    """A document and the tree that it speaks of: its folder, or the one above `docs/`."""
    path = path.absolute()
    above = path.parent.parent if path.parent.name in BESIDE else path.parent
    tree = Tree((root or above).absolute())
    inside = path.is_relative_to(tree.root)
    name = path.relative_to(tree.root).as_posix() if inside else path.name
    folder = path.parent.relative_to(tree.root).as_posix() if inside else "."
    return Reading(name, read_document(path), folder), tree


def conflicts(reading: Reading, tree: Tree, *names: str) -> tuple[Finding, ...]:
    """What the rules of these names find, or all of them, in the rules' order."""
    return tuple(finding for name in names or RULES for finding in RULES[name](reading, tree))
