"""Whom to blame: the truth table, row by row."""

from __future__ import annotations

from itertools import product

import pytest

from pytest_cudaboot.model import Outcome
from pytest_cudaboot.rules.opinions import TABLE, Answer, blame, merged, peers

F, H, S, N = Answer.FAILS, Answer.HOLDS, Answer.SPLIT, Answer.NONE
ROWS = [
    # cause, the same card again, its siblings, blame
    ("numeric", F, F, "toolchain"),
    ("numeric", F, H, "card"),
    ("numeric", F, S, "undecidable"),
    ("numeric", F, N, "undecidable"),
    ("numeric", H, F, "flaky"),
    ("numeric", H, H, "flaky"),
    ("numeric", H, S, "flaky"),
    ("numeric", H, N, "flaky"),
    ("numeric", S, N, "flaky"),
    ("numeric", N, F, "toolchain"),
    ("numeric", N, H, "card"),
    ("numeric", N, S, "undecidable"),
    ("numeric", N, N, "undecidable"),
    ("crash", F, F, "toolchain"),
    ("crash", F, H, "card"),
    ("crash", F, N, "undecidable"),
    ("crash", H, N, "flaky"),
    ("hang", F, F, "toolchain"),
    ("hang", F, H, "card"),
    ("hang", N, N, "undecidable"),
    ("hang", H, N, "flaky"),
    ("collateral", F, F, "toolchain"),
    ("collateral", F, H, "card"),
    ("collateral", F, N, "undecidable"),
    ("collateral", H, H, "undecidable"),
    ("collateral", H, F, "undecidable"),
    ("collateral", H, N, "undecidable"),
    ("collateral", N, F, "undecidable"),
    ("collateral", N, N, "undecidable"),
]


WITNESSED = [
    # whom the hardware's evidence speaks against; a word of the driver's on programs decides where nobody else does
    ("run", F, F, "toolchain", "toolchain"),
    ("run", F, H, "toolchain", "card"),
    ("run", F, S, "toolchain", "toolchain"),
    ("run", F, N, "toolchain", "toolchain"),
    ("run", H, N, "toolchain", "flaky"),
    ("run", S, N, "toolchain", "flaky"),
    ("run", N, H, "toolchain", "card"),
    ("run", N, S, "toolchain", "toolchain"),
    ("run", N, N, "toolchain", "toolchain"),
    ("collateral", H, N, "toolchain", "undecidable"),
    ("collateral", N, N, "toolchain", "undecidable"),
    *(
        (cause, same, other, "card", "card")
        for cause in ("run", "collateral")
        for same in Answer
        for other in Answer
    ),
]


@pytest.mark.parametrize(("cause", "same", "sibling", "word"), ROWS)
def test_a_row(cause: str, same: Answer, sibling: Answer, word: str) -> None:
    assert blame(cause, same, sibling) == word


@pytest.mark.parametrize(("cause", "same", "sibling", "against", "word"), WITNESSED)
def test_a_row_with_the_hardwares_evidence(
    cause: str, same: Answer, sibling: Answer, against: str, word: str
) -> None:
    assert blame(cause, same, sibling, against) == word


def test_each_row_of_the_table_decides_something() -> None:
    """Without any one of its rows, some combination has another word or none."""
    asked = list(product(["numeric", "collateral"], Answer, Answer, [None, "card", "toolchain"]))
    for place in range(len(TABLE)):
        rest = [row for number, row in enumerate(TABLE) if number != place]
        without = [next((row.blame for row in rest if row.fits(*question)), None) for question in asked]

        assert without != [blame(*question) for question in asked], TABLE[place]


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ([], N),
        ([Outcome.HOLDS], H),
        ([Outcome.HOLDS, Outcome.EXPIRED], H),
        ([Outcome.BROKEN, Outcome.BROKEN], F),
        ([Outcome.BROKEN, Outcome.HOLDS], S),
        ([Outcome.NOT_RUN, Outcome.BLOCKED], N),
        ([Outcome.NOT_RUN, Outcome.HOLDS], H),
    ],
)
def test_the_cells_of_other_cards_are_opinions(row: list[Outcome], answer: Answer) -> None:
    outcomes = {"own": Outcome.BROKEN, **{f"GPU-{number}": outcome for number, outcome in enumerate(row)}}

    assert peers(outcomes, dict.fromkeys(outcomes, "H200"), "own") is answer


def test_a_card_of_another_model_gives_no_opinion() -> None:
    assert peers({"a": Outcome.BROKEN, "b": Outcome.HOLDS}, {"a": "H200", "b": "L4"}, "a") is N


def test_nobody_and_somebody_is_somebody() -> None:
    assert [merged([N, F]), merged([N]), merged([F, F]), merged([H, F])] == [F, N, F, S]
