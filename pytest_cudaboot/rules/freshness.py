"""Whether a library is what its sources make today: decided by content, never by a clock. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

STEP = "Step 3"


class Freshness(Enum):
    """What can be said of a library's age."""

    FRESH = "fresh"
    STALE = "stale"
    UNDECIDABLE = "undecidable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """What a library says of how it came to be.

    :param sha256: of the whole file.
    :param compilers: the compilers' own words in it (`.comment`), sorted; empty if they were stripped.
    """

    sha256: str
    compilers: tuple[str, ...]
    exported: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A freshness and its reason in words."""

    freshness: Freshness
    reason: str


def judge_freshness(name: str, have: Built, made: Built | None, rebuild: str) -> Judgement:
    """Compare a library with one that the documented line has just made of the same sources.

    :param made: None where it could not be made, for want of a build tree.
    :param rebuild: the command that builds it.
    """
    if made is None:
        return _undecidable(name, "there is no build tree to make another one from (IREE_SRC, IREE_BUILD)")
    if have.sha256 == made.sha256:
        return Judgement(freshness=Freshness.FRESH, reason=f"{name} is what its sources make, to the byte")
    lacking, extra = made.exported - have.exported, have.exported - made.exported
    if lacking or extra:
        words = [*(f"lacks {one}" for one in sorted(lacking)), *(f"still has {one}" for one in sorted(extra))]
        return _stale(name, ", ".join(words), rebuild)
    if have.compilers != made.compilers:
        theirs = "; ".join(have.compilers) or "no compiler's name (stripped?)"
        return _undecidable(name, f"it was built by {theirs}, and here is {'; '.join(made.compilers)}")
    return _stale(name, "its code is not what its sources make with the same compiler", rebuild)


def _stale(name: str, why: str, rebuild: str) -> Judgement:
    return Judgement(
        freshness=Freshness.STALE, reason=f"{STEP}: {name} is stale: {why}; rebuild it: {rebuild}"
    )


def _undecidable(name: str, why: str) -> Judgement:
    return Judgement(
        freshness=Freshness.UNDECIDABLE, reason=f"undecidable: whether {name} is fresh can not be told: {why}"
    )
