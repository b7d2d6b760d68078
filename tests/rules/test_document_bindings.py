"""What is remembered of a document: drift, orphans, coverage, and the file that keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.errors import DocumentError
from pytest_cudaboot.rules.document_bindings import (
    Bindings,
    Entry,
    Review,
    State,
    closest,
    compare,
    dumps,
    load_bindings,
)
from pytest_cudaboot.rules.document_items import items
from pytest_cudaboot.rules.document_quotes import quoted, read_quotes

TEXT = """\
# Run

It takes 3 GB. Then it rests.

⚠ Leave MODE unset.

⚠ Keep 2 cards free.

```sh
./run data
```

## End

It ends after 9 steps.
"""
SPECS = {
    "It takes 3 GB.": ("run.memory",),
    "Then it rests.": ("run.rests",),
    "⚠ Leave MODE unset.": ("run.mode",),
    "⚠ Keep 2 cards free.": ("run.free", "run.both"),
    "./run data": ("run.runs", "run.both"),
    "It ends after 9 steps.": ("end.steps",),
}
CATALOG = {spec for specs in SPECS.values() for spec in specs}


def remembered(text: str = TEXT) -> Bindings:
    entries = [
        Entry(kind=item.kind, anchor=item.anchor, sha=item.sha, specs=SPECS[item.text])
        for item in items(text)
    ]
    return Bindings(entries=tuple(entries))


def held(text: str) -> Review:
    return compare(items(text), remembered(), catalog=CATALOG)


def test_an_unchanged_document_is_covered_whole() -> None:
    review = held(TEXT)

    assert {found.state for found in review.states} == {"bound"}
    assert (review.drifted, review.orphans, review.unknown, review.percent()) == ((), (), (), 100.0)


def test_one_edited_warning_is_exactly_that_specs_drift() -> None:
    review = held(TEXT.replace("Leave MODE unset", "Set MODE to 1"))

    assert (review.drifted, review.orphans) == (("run.mode",), ())
    (drifted,) = review.in_state("drifted")
    assert (drifted.item.line, drifted.item.text) == (5, "⚠ Set MODE to 1.")


def test_two_edited_neighbours_keep_their_own_specs() -> None:
    changed = TEXT.replace("MODE unset", "MODE alone").replace("Keep 2", "Keep 3")

    states = held(changed).in_state("drifted")
    assert [found.specs for found in states] == [("run.mode",), ("run.free", "run.both")]


def test_blanks_emphasis_and_line_ends_are_no_drift() -> None:
    review = held(TEXT.replace("It takes 3 GB. Then", "It *takes*\n 3 GB.\nThen"))

    assert review.drifted == ()


def test_a_sentence_that_moved_is_the_same() -> None:
    moved = TEXT.replace("⚠ Leave MODE unset.\n", "") + "\n⚠ Leave MODE unset.\n"

    assert (held(moved).drifted, held(moved).orphans) == ((), ())


def test_a_heading_with_another_name_is_no_drift() -> None:
    assert held(TEXT.replace("## End", "## The end")).drifted == ()


def test_a_text_that_vanished_leaves_an_orphan() -> None:
    review = held(TEXT.replace("⚠ Leave MODE unset.\n", ""))

    assert (review.orphans, review.drifted) == (("run.mode",), ())


def test_a_spec_that_lost_a_part_of_its_text_has_drifted() -> None:
    review = held(TEXT.replace("⚠ Keep 2 cards free.\n", ""))

    assert (review.orphans, review.drifted) == (("run.free",), ("run.both",))


def test_a_new_sentence_with_a_figure_is_uncovered_and_a_plain_one_is_free() -> None:
    review = held(TEXT + "\nIt costs 4 W. Nobody minds.\n")

    assert [found.item.text for found in review.in_state("uncovered")] == ["It costs 4 W."]
    assert [found.item.text for found in review.in_state("free")] == ["Nobody minds."]
    assert review.percent("claim") == pytest.approx(200 / 3)


def test_a_spec_that_the_catalogue_lacks_is_named() -> None:
    review = compare(items(TEXT), remembered(), catalog=CATALOG - {"run.mode"})

    assert review.unknown == ("run.mode",)


def test_a_quotation_above_a_test_binds_what_it_quotes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "# > It **takes** 3 GB.\n# > Then\n"
        '@pytest.mark.spec("run.memory", role="canary")\ndef test_a(): ...\n'
        '# > `./run data`\n@pytest.mark.spec("run.runs")\n'
    )
    found = items(TEXT)

    binding = quoted(found, read_quotes(tmp_path))
    review = compare(found, Bindings(), catalog=CATALOG, quoted=binding)
    assert [(state.item.line, state.specs) for state in review.in_state("bound")] == [
        (3, ("run.memory",)),
        (10, ("run.runs",)),
    ]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    review = held(TEXT + "\nIt costs 4 W.\n")
    path = tmp_path / "kept.toml"
    path.write_text(dumps("RUN.md", review.states))

    again = compare(items(TEXT), load_bindings(path), catalog=CATALOG)
    assert (again.drifted, again.orphans) == ((), ())
    assert [found.specs for found in again.states] == list(SPECS.values())


def test_no_word_of_the_document_is_kept() -> None:
    kept = dumps("RUN.md", held(TEXT).states)

    assert [text for text in SPECS if text in kept] == []
    assert '[sections."run"]' in kept


def test_the_file_that_knows_most_of_a_document_is_taken(tmp_path: Path) -> None:
    states = held(TEXT).states
    others = compare(items(TEXT.replace("a", "o")), Bindings(), catalog=CATALOG).states
    (tmp_path / "a.toml").write_text(dumps("A.md", [*states[:1], *others]))
    (tmp_path / "b.toml").write_text(dumps("B.md", states))
    paths = sorted(tmp_path.glob("*.toml"))

    assert closest(paths, items(TEXT)).path == tmp_path / "b.toml"
    assert closest(paths, items(f"# Foreign\n\n{TEXT[7:23]}\nIt has 7 lives.")).path is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("sections = 3", "sections: 3 is no table of headings"),
        ("[sections]\nrun = 3", "sections.run: 3 is no table of hashes"),
        ('[sections.run]\n"claim 12" = []', "'claim 12' is not a hash behind one of command, warning"),
        ('[sections.run]\n"claim 0123456789abcdef" = "a.b"', "'a.b' is no list of specs"),
        ("[sections", "kept.toml: is not TOML: Expected"),
    ],
)
def test_a_malformed_file_is_refused_by_key(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "kept.toml"
    path.write_text(content)

    with pytest.raises(DocumentError, match=words):
        load_bindings(path)


def test_a_state_without_specs_is_kept_for_its_place() -> None:
    (item,) = items("# H\nWords.")

    assert f'"prose {item.sha}" = []' in dumps("H.md", [State(item=item, state="free")])
