"""A waiver is read whole or refused, and counts until its day."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.model import CellKey
from pytest_cudaboot.rules.waivers import Waiver, find_waiver, idle_reason, load_waivers, waived_cells
from tests.rules.builders import catalog_of

GOOD = """
[[waiver]]
spec = "s.one"
reason = "card 3 is on its way out"
owner = "ops"
expires = 2026-12-31
"""
WAIVER = Waiver(spec="s.one", reason="card 3 is on its way out", owner="ops", expires=date(2026, 12, 31))
LAST, AFTER = date(2026, 12, 31), date(2027, 1, 1)


def load(tmp_path: Path, text: str) -> tuple[Waiver, ...]:
    path = tmp_path / "w.toml"
    path.write_text(text)
    return load_waivers(path)


def test_a_file_is_read(tmp_path: Path) -> None:
    both = load(tmp_path, GOOD + GOOD + 'lowerer = "iree"\n')

    assert both[0] == WAIVER
    assert both[1].lowerer == "iree"


def test_an_empty_file_waives_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            GOOD + "until = 3",
            "w.toml: waiver 1: until: unknown key; known: spec, reason, owner, expires, lowerer",
        ),
        (GOOD.replace("reason", "#"), "w.toml: waiver 1: reason: is missing"),
        (GOOD.replace('"ops"', '""'), "owner: '' is not a text with something in it"),
        (
            GOOD.replace("2026-12-31", '"2026-12-31"'),
            "expires: '2026-12-31' is not a date; write it bare, 2026-12-31",
        ),
        (GOOD.replace("2026-12-31", "2026-12-31T00:00:00"), "is not a date"),
        (GOOD.replace("expires", "#"), "expires: is missing"),
        (GOOD + 'lowerer = "tpu"', "lowerer: 'tpu' is not one of xla, iree"),
        (GOOD.replace("[[waiver]]", "[waiver]"), "w.toml: waiver: write [[waiver]]"),
        ("waiver = 3", "w.toml: waiver: write [[waiver]]"),
        ("[[waivers]]", "w.toml: waivers: unknown key; a waiver is a [[waiver]] table"),
        ("[[waiver", "w.toml: is not TOML: "),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(CatalogError, match=re.escape(words)):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("lowerer", "key", "today", "covered"),
    [
        (None, CellKey("s.one"), LAST, True),
        (None, CellKey("s.one"), AFTER, False),
        (None, CellKey("s.two"), LAST, False),
        (None, CellKey("s.one", "xla", "GPU-a"), LAST, True),
        ("iree", CellKey("s.one", "iree"), LAST, True),
        ("iree", CellKey("s.one", "xla"), LAST, False),
    ],
)
def test_a_waiver_covers_its_spec_until_its_day(
    lowerer: str | None,
    key: CellKey,
    today: date,
    covered: bool,  # noqa: FBT001 - a table
) -> None:
    waiver = Waiver(spec="s.one", reason="r", owner="o", expires=LAST, lowerer=lowerer)

    assert (find_waiver([waiver], key, today) is waiver) is covered
    assert (waived_cells([waiver], [key], today) == {key}) is covered


@pytest.mark.parametrize(
    ("waiver", "today", "reason"),
    [
        (WAIVER, LAST, None),
        (WAIVER, AFTER, "expired on 2026-12-31"),
        (Waiver(spec="s.on", reason="r", owner="o", expires=LAST), LAST, "the catalogue has no such spec"),
        (
            Waiver(spec="s.one", reason="r", owner="o", expires=LAST, lowerer="iree"),
            LAST,
            "the spec has no cell for lowerer 'iree'",
        ),
    ],
)
def test_a_waiver_that_can_excuse_nothing_says_why(waiver: Waiver, today: date, reason: str | None) -> None:
    idle = idle_reason(waiver, catalog_of(s__one={"lowerers": ["xla"]}), today)

    assert idle is None if reason is None else reason in str(idle)


def test_a_waiver_survives_the_ledger() -> None:
    assert Waiver.from_json(WAIVER.to_json()) == WAIVER
