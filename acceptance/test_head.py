"""Head: what the document says of itself and of the box. BOOTSTRAP.md"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytest_cudaboot.model import Gpu
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.document import links
from pytest_cudaboot.run.evidence import Evidence

# The document's own table, by what a card's name begins with or holds.
CAPABILITIES = (
    (re.compile(r"\bA100\b"), (8, 0)),
    (re.compile(r"\bRTX 30[5-9]0\b|\bA(10|16|40|2000|4000|5000|6000)\b"), (8, 6)),
    (re.compile(r"\bRTX 40[5-9]0\b|\bL(4|40)\b"), (8, 9)),
    (re.compile(r"\bH(100|200)\b"), (9, 0)),
)
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
COUNTED = re.compile(
    rf"\b(\d+|{'|'.join(NUMBERS)})(?: |\u00d7 ?|x ?)(?:\w+ ){{0,2}}(?:cards|GPUs)\b", re.IGNORECASE
)


@pytest.mark.spec("intro.links")
def test_relative_links_resolve(project: Project, document_text: str, evidence: Evidence) -> None:
    assert project.document is not None
    folder = project.document.parent
    targets = [link.target.partition("#")[0] for link in links(document_text)]
    relative = [target for target in targets if target and "://" not in target]

    evidence.measure(links=len(relative))
    assert [target for target in relative if not (folder / target).exists()] == []


@pytest.mark.spec("intro.box-size")
def test_the_document_agrees_with_itself_on_the_number_of_cards(
    document_text: str, measure: Callable[..., None]
) -> None:
    counts = card_counts(document_text)

    measure(card_counts=sorted(counts))
    assert len(counts) <= 1


@pytest.mark.spec("intro.box-size")
def test_two_numbers_of_cards_would_be_seen(evidence: Evidence) -> None:
    evidence.act()

    assert card_counts("The box has 2\u00d7 H200 GPUs; train on all four idle cards.") == {2, 4}


@pytest.mark.spec("intro.ada-sm89")
def test_capability_is_the_documented_one(gpu: Gpu, measure: Callable[..., None]) -> None:
    documented = next((sm for name, sm in CAPABILITIES if name.search(gpu.name)), None)

    measure(card=gpu.name, capability=gpu.capability, documented=documented)
    assert documented in (None, gpu.capability)


def card_counts(text: str) -> set[int]:
    """How many cards a text speaks of."""
    return {NUMBERS.get(word.lower()) or int(word) for word in COUNTED.findall(text)}
