"""What a person reads, down to a narrow terminal."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest._io import TerminalWriter

from pytest_cudaboot.model import Gpu, RunRecord
from pytest_cudaboot.report import terminal

CARD = Gpu(index=3, uuid="GPU-1a2b3c4d-5e", name="L4", capability=(8, 9), memory=1, pci="00000000:01:00.0")


def cell(spec: str, heading: str = "Step 1", **more: Any) -> dict[str, Any]:
    bare: dict[str, Any] = {
        "lowerer": None,
        "platform": None,
        "gpus": [],
        "cause": None,
        "reason": None,
        "seconds": 0.25,
    }
    return {"spec": spec, "heading": heading, "outcome": "holds", "decides": True, **bare, **more}


def verdict(*cells: dict[str, Any], reasons: tuple[str, ...] = (), ruling: str = "accept") -> dict[str, Any]:
    scope: dict[str, Any] = {"in": [], "out": []}
    return {
        "verdict": ruling,
        "reasons": list(reasons),
        "cells": list(cells),
        "scope": scope,
        "project": {"name": "reference"},
        "simulated": False,
    }


def shown(document: dict[str, Any], width: int = 80) -> list[str]:
    return ["".join(text for text, _ in line) for line in terminal.cells(document, width)]


def test_a_heading_stands_once_and_columns_line_up() -> None:
    rows = shown(
        verdict(
            cell("a.one", lowerer="xla", platform="cuda", gpus=[{"uuid": CARD.uuid}]),
            cell("a.longer", outcome="expired", seconds=12.34),
            cell("b.one", heading="Step 2", seconds=None),
        )
    )

    assert rows == [
        "Step 1",
        "  a.one     xla cuda GPU-1a2b3c4d  holds     0.2 s",
        "  a.longer  host                   expired  12.3 s",
        "Step 2",
        "  b.one     host                   holds     0.0 s",
    ]


def test_a_reason_is_wrapped_under_its_row_and_what_holds_has_none() -> None:
    long = "it says " + "very " * 100
    rows = shown(
        verdict(cell("a.one", reason="fine"), cell("a.two", outcome="broken", cause="run", reason=long))
    )

    assert rows[2].startswith("  a.two  host  broken (run)")
    assert [len(row) <= 80 for row in rows] == [True] * len(rows)
    assert rows[3].startswith("      it says very")
    assert rows[-1].endswith("very …")
    assert len(rows) == 7


def test_the_closing_names_the_first_reasons_and_the_report() -> None:
    reasons = tuple(f"reason {number}" for number in range(14))
    lines = [
        "".join(text for text, _ in line) for line in terminal.closing(verdict(reasons=reasons), "v.json")
    ]

    assert lines[0] == "accept · reference · 0 specs hold"
    assert lines[1] == "  reason 0"
    assert lines[-2:] == ["  … and 2 more", "  report: v.json"]


@pytest.mark.parametrize("table", [True, False])
def test_it_is_written_with_the_reporters_own_writer(table: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001 - a parameter
    writer = TerminalWriter()
    writer.hasmarkup = True
    terminal.write(writer, verdict(cell("a.one"), ruling="reject"), "v.json", table=table)
    text = capsys.readouterr().out

    assert ("\x1b[1mStep 1\x1b[0m" in text) is table
    assert "\x1b[31m\x1b[1mreject · reference · 1 spec holds\x1b[0m\n" in text


def run(**changes: Any) -> RunRecord:
    facts: dict[str, Any] = {
        "run": "r",
        "started": "2026-01-01T00:00:00+00:00",
        "argv": (),
        "platform": "cpu",
        "gpus": (),
        "lowerers": ("xla",),
        "explicit_lowerers": False,
        "tracks": ("toolchain",),
        "require": (),
        "scope_in": ("a.one",),
        "scope_out": (("b.one", "no card"), ("b.two", "no card"), ("b.three", "no lakefile")),
        "simulated": False,
        "project": {"name": "reference", "path": "/p"},
        "catalog": {},
        "box": {"driver": "580.65"},
        "toolchain": {"plugin": {"path": None, "absence": "no PJRT plugin found; tried: /x"}},
    }
    return RunRecord(**{**facts, **changes})


def test_the_header_tells_what_is_out_of_scope_reason_by_reason() -> None:
    assert terminal.header(run(), ["a note"]) == [
        "cudaboot: project reference · /p",
        "cudaboot: cards none (host scope, on the CPU)",
        "cudaboot: xla has no PJRT plugin for cpu: no PJRT plugin found; tried: /x",
        "cudaboot: scope 1 specs in, 3 out",
        "cudaboot:   out (no card): b.one, b.two",
        "cudaboot:   out (no lakefile): b.three",
        "cudaboot: a note",
    ]


def test_the_header_ties_index_uuid_and_bus_together() -> None:
    lines = terminal.header(run(gpus=(CARD,), platform="cuda"), [])

    assert "cudaboot: card 3 = GPU-1a2b3c4d-5e L4 at 00000000:01:00.0, driver 580.65" in lines
