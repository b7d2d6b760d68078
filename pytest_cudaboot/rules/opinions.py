"""Whom to blame for a cell that is broken on a card: its tests when they were run again, and what the cards told. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_cudaboot.model import Outcome, Place, Status
from pytest_cudaboot.rules.cells import culprits, settle
from pytest_cudaboot.rules.hardware import accused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_cudaboot.model import AttemptRecord, ResultRecord
    from pytest_cudaboot.rules.spec import Spec

IMPLAUSIBLE = 0.01  # what is less likely than this under a stated rate is not what was stated


class Answer(StrEnum):
    """What one or more runs of a cell say about it."""

    FAILS = "fails"
    HOLDS = "holds"
    SPLIT = "split"  # they contradict each other
    NONE = "none"  # nobody was asked, or nothing came of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row of the truth table; None stands for whatever it may be.

    :param cause: of the first failure.
    :param same: a fresh process on the same card; `sibling`: other cards of its model.
    :param against: whom the card's counters and events speak against, `card` or `toolchain`.
    """

    cause: str | None = None
    same: Answer | None = None
    sibling: Answer | None = None
    against: str | None = None
    blame: str

    def fits(self, cause: str | None, same: Answer, sibling: Answer, against: str | None) -> bool:
        """Whether it is about that."""
        asked = (cause, same, sibling, against)
        mine = (self.cause, self.same, self.sibling, self.against)
        return all(own in (None, other) for own, other in zip(mine, asked, strict=True))


# The first row that fits. A crash or a hang that comes again is judged as any failure that does.
TABLE = (
    # A card whose counters crossed the policy while the test failed there, whatever other cards did.
    Row(against="card", blame="card"),
    # What holds alone in a fresh process was the victim of another test, and that one has a cell of its own.
    Row(cause="collateral", same=Answer.HOLDS, blame="undecidable"),
    Row(cause="collateral", same=Answer.NONE, blame="undecidable"),
    Row(same=Answer.HOLDS, blame="flaky"),
    Row(same=Answer.SPLIT, blame="flaky"),
    Row(same=Answer.FAILS, sibling=Answer.FAILS, blame="toolchain"),
    Row(same=Answer.FAILS, sibling=Answer.HOLDS, blame="card"),
    # Nobody was asked again: the same cell has been run on the other cards, and that is an opinion as well.
    Row(same=Answer.NONE, sibling=Answer.FAILS, blame="toolchain"),
    Row(same=Answer.NONE, sibling=Answer.HOLDS, blame="card"),
    # No other card has an answer, or they have several; but the driver has told of an error that programs make.
    Row(against="toolchain", blame="toolchain"),
    Row(blame="undecidable"),
)


def blame(cause: str | None, same: Answer, sibling: Answer, against: str | None = None) -> str:
    """The table's word for it."""
    return next(row.blame for row in TABLE if row.fits(cause, same, sibling, against))


def against(results: Iterable[ResultRecord], attempts: Iterable[AttemptRecord]) -> str | None:
    """Whom the evidence of the hardware speaks against, as far as a test failed meanwhile.

    What counts on a sibling's counters is the sibling's matter; that a program errs there as well is the program's.
    """
    failed = (Status.FAILED, Status.CRASHED)
    again = [one for one in attempts if one.status in failed]
    own = [one.evidence for one in results if one.status in failed]
    own += [one.evidence for one in again if one.place is Place.SAME]
    elsewhere = accused([one.evidence for one in again if one.place is Place.SIBLING])
    return accused(own) or (elsewhere if elsewhere == "toolchain" else None)


def merged(answers: Iterable[Answer]) -> Answer:
    """What several say together; who has no answer does not count."""
    told = {answer for answer in answers if answer is not Answer.NONE}
    return Answer.NONE if not told else told.pop() if len(told) == 1 else Answer.SPLIT


def answer_of(outcome: Outcome) -> Answer:
    """What an outcome says as an opinion."""
    if outcome is Outcome.BROKEN:
        return Answer.FAILS
    return Answer.HOLDS if outcome in (Outcome.HOLDS, Outcome.EXPIRED) else Answer.NONE


def peers(outcomes: Mapping[str, Outcome], models: Mapping[str, str], card: str) -> Answer:
    """What the same cell did on the other cards of this run, by UUID.

    Only cards of the same model are asked: another chip is another program.

    :param models: by UUID, the card's name.
    """
    return merged(
        answer_of(outcome)
        for uuid, outcome in outcomes.items()
        if uuid != card and models.get(uuid) == models.get(card)
    )


def heard(
    spec: Spec,
    results: Sequence[ResultRecord],
    attempts: Iterable[AttemptRecord],
    place: Place,
    *,
    platform: str,
) -> Answer:
    """What a broken cell does where its tests were run again: each card's attempts in the place of what failed.

    The cards of a gang count as one: which of them it was can not be told.
    """
    by_cards: dict[tuple[str, ...], dict[str, AttemptRecord]] = defaultdict(dict)
    for attempt in attempts:
        if attempt.place is place:
            by_cards[attempt.cards][attempt.nodeid] = attempt
    return merged(_on_one(spec, results, again, platform) for again in by_cards.values())


def _on_one(
    spec: Spec, results: Sequence[ResultRecord], again: Mapping[str, AttemptRecord], platform: str
) -> Answer:
    failed = {result.nodeid for result in culprits(spec, results)}
    told = [_again(one, again.get(one.nodeid)) if one.nodeid in failed else one for one in results]
    return answer_of(settle(spec, told, platform=platform).outcome)


def _again(result: ResultRecord, attempt: AttemptRecord | None) -> ResultRecord:
    """A result as the attempt has it; what was not run again, or was a victim again, or of another card, says nothing."""
    if attempt is None or attempt.cause == "collateral" or _by_its_card(attempt):
        return replace(result, status=Status.SKIPPED, cause=None, reason="not run again")
    return replace(
        result,
        status=attempt.status,
        cause=attempt.cause,
        reason=attempt.reason,
        platform=attempt.platform,
        gpus=attempt.gpus,
    )


def _by_its_card(attempt: AttemptRecord) -> bool:
    """Whether it failed on a sibling whose own counters crossed the policy meanwhile."""
    well = attempt.status is Status.PASSED or attempt.place is Place.SAME
    return not well and accused([attempt.evidence]) == "card"


def allows(spec: Spec, failed: int, attempts: int) -> bool:
    """Whether so many failures are what a spec's stated rate lets expect.

    :returns: false for a spec that states none.
    """
    if spec.flaky is None or failed >= attempts:
        return False
    rate = spec.flaky
    tail = sum(
        math.comb(attempts, count) * rate**count * (1 - rate) ** (attempts - count)
        for count in range(failed, attempts + 1)
    )
    return tail >= IMPLAUSIBLE


def in_words(attempts: Sequence[AttemptRecord]) -> str:
    """What came of asking, for a reason."""
    told = []
    for attempt in attempts:
        where = "there" if attempt.place is Place.SAME else f"on {attempt.place_name}"
        match attempt.status:
            case Status.SKIPPED:
                word = f"could not be ({attempt.reason})"
            case Status.PASSED:
                word = "holds"
            case _:
                word = f"fails ({attempt.cause or attempt.status})"
        told.append(f"{where} {word}")
    return f"; again {', '.join(dict.fromkeys(told))}" if told else ""
