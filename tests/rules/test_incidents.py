"""The incidents' file: what it must hold, and that the map which is made of it is the one that is published."""

from __future__ import annotations

from pathlib import Path

import pytest

import pytest_cudaboot
from pytest_cudaboot.cli import main
from pytest_cudaboot.errors import CatalogError
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.incidents import load_incidents, load_planned, render

SUITE = suite_root() / "acceptance"
MAP = Path(pytest_cudaboot.__file__).parents[1] / "docs" / "incidents.md"
CAUGHT = '[X-1]\ntags = ["H"]\nwhat = "It broke"\nspecs = ["a.b", "a.c"]\nfix = "Mend it"\n'
MISSED = '[X-2]\ntags = ["E", "G"]\nwhat = "It was slow"\nreason = "Nothing is wrong"\n'


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "incidents.toml"


def test_an_incident_has_specs_or_a_reason(written: Path) -> None:
    written.write_text(CAUGHT + MISSED)

    caught, missed = load_incidents(written)
    assert (caught.specs, caught.fix, caught.reason) == (("a.b", "a.c"), "Mend it", "")
    assert (missed.specs, missed.fix, missed.reason) == ((), "", "Nothing is wrong")


def test_the_map_shows_what_is_planned(written: Path) -> None:
    written.write_text(CAUGHT + MISSED)

    lines = render(load_incidents(written), {"a.c": "later"}).splitlines()
    assert lines[-2:] == [
        "| X-1 | H | It broke | `a.b`, *a.c* | Mend it |",
        "| X-2 | E, G | It was slow | none | Nothing is wrong |",
    ]
    assert "1 of 2 have a spec; for the others the reason is told." in lines


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("X-1 = 3", "incidents.toml: X-1: 3 is no table"),
        (CAUGHT + 'reason = "r"', r"\[X-1\]: specs: an incident has specs, or a reason"),
        ('[X-1]\ntags = ["H"]\nwhat = "w"\n', r"\[X-1\]: specs: an incident has specs, or a reason"),
        (CAUGHT.replace('"H"', '"Q"'), r"\[X-1\]: tags: 'Q' is not one of H, S, E, G, M"),
        (CAUGHT.replace('fix = "Mend it"\n', ""), r"\[X-1\]: fix: "),
        (CAUGHT + 'cure = "x"', r"\[X-1\]: cure"),
    ],
)
def test_a_malformed_incident_is_refused(written: Path, content: str, words: str) -> None:
    written.write_text(content)

    with pytest.raises(CatalogError, match=words):
        load_incidents(written)


def test_every_spec_that_catches_something_exists_or_is_planned() -> None:
    named = {spec for incident in load_incidents(SUITE / "incidents.toml") for spec in incident.specs}

    assert (
        named - set(load_catalog(SUITE / "catalog.toml").specs) - set(load_planned(SUITE / "planned.toml"))
        == set()
    )


def test_the_published_map_is_made_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doc", "incidents"]) == 0
    assert capsys.readouterr().out == MAP.read_text(), "run: cudaboot doc incidents > docs/incidents.md"
