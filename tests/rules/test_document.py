"""What a document says where, and nothing that stands in its code."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from pytest_cudaboot.errors import DocumentError
from pytest_cudaboot.rules.document import (
    LARGEST,
    code_blocks,
    headings,
    links,
    missing_headings,
    parse,
    plain,
    read_document,
    shell_lines,
)
from tests.rules.builders import catalog_of

TEXT = dedent("""\
    # Bring-up

    See [the mirror](ROCM.md#step-2), [upstream](https://example.org/x), [below](#step-1-run).

    ## Step 1: Run

    ```bash
    # not a heading
    echo "[no](LINK.md)"
    ```

    ### `sm_89` (Ada): leave **it** unset ###

    ~~~python
    ```
    ## neither
    ~~~

    ## Step 1: Run
    The end, `[code](NO.md)` and [`code`](YES.md "title").
    """)


def test_headings_are_read_outside_of_code() -> None:
    found = [(heading.level, heading.text, heading.line) for heading in headings(TEXT)]

    assert found == [
        (1, "Bring-up", 1),
        (2, "Step 1: Run", 5),
        (3, "sm_89 (Ada): leave it unset", 12),
        (2, "Step 1: Run", 19),
    ]


def test_anchors_are_made_as_github_makes_them() -> None:
    assert [heading.anchor for heading in headings(TEXT)] == [
        "bring-up",
        "step-1-run",
        "sm_89-ada-leave-it-unset",
        "step-1-run-1",
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("#", ""),
        ("## a #b", "a #b"),
        ("## a ##", "a"),
        ("   ## a", "a"),
        ("#\ta", "a"),
        ("###### a", "a"),
    ],
)
def test_a_heading_is(line: str, text: str) -> None:
    assert [heading.text for heading in headings(line)] == [text]


@pytest.mark.parametrize("line", ["#a", "####### a", "    # a", "a # b", "> # a", r"\# a"])
def test_a_heading_is_not(line: str) -> None:
    assert headings(line) == ()


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("`a_b` *c* __d__ _e_", "a_b c d e"),
        ("snake_case_name", "snake_case_name"),
        ("[x](Y.md) z", "x z"),
        (" a   b ", "a b"),
    ],
)
def test_inline_marks_are_not_text(markdown: str, text: str) -> None:
    assert plain(markdown) == text


def test_an_orphan_is_named_with_its_spec() -> None:
    catalog = catalog_of(
        s__one={"heading": "Step 1: Run"},
        s__two={"heading": "`sm_89` (Ada): leave it unset"},
        s__three={"heading": "Step 9"},
    )

    assert missing_headings(catalog, TEXT) == ["s.three: the document has no heading 'Step 9'"]


def test_links_are_the_relative_ones_outside_of_code() -> None:
    assert [(link.target, link.line) for link in links(TEXT)] == [
        ("ROCM.md#step-2", 3),
        ("#step-1-run", 3),
        ("YES.md", 20),
    ]


def test_a_link_around_code_keeps_its_target() -> None:
    assert [link.target for link in links("[`IREE_BUILD.md`](IREE_BUILD.md) §2")] == ["IREE_BUILD.md"]


def test_code_blocks_are_told_by_language_and_line() -> None:
    (block,) = code_blocks(TEXT, "bash")

    assert (block.line, block.text) == (8, '# not a heading\necho "[no](LINK.md)"\n')
    assert [block.text for block in code_blocks(TEXT, "python")] == ["```\n## neither\n"]


@pytest.mark.parametrize(
    "text", ["```sh\na\n", "```sh\na\n```\n", "```sh title\na\n````\n", "~~~ sh\na\n~~~"]
)
def test_a_block_ends_at_its_fence_or_with_the_text(text: str) -> None:
    assert [block.text for block in code_blocks(text, "sh")] == ["a\n"]


def test_two_blocks_in_a_row_are_two() -> None:
    assert [block.text for block in code_blocks("```\na\n```\n```\nb\n```", "")] == ["a\n", "b\n"]


def test_code_on_one_line_opens_no_block() -> None:
    assert [heading.text for heading in headings("```a```\n# b")] == ["b"]


def test_sentences_are_told_with_their_lines() -> None:
    text = "One `a.\nb` two.\nThe **third.** Fourth, e.g. This.\n\n> Quoted\n\n- item (v1.2.\n"

    assert [(told.line, told.text, told.quoted) for told in parse(text).sentences] == [
        (1, "One `a. b` two.", False),
        (3, "The third.", False),
        (3, "Fourth, e.g. This.", False),
        (5, "Quoted", True),
        (7, "item (v1.2.", False),
    ]


def test_a_sentence_knows_its_heading() -> None:
    last = parse(TEXT).sentences[-1]

    assert (last.anchor, last.line) == ("step-1-run-1", 20)


def test_a_link_is_told_with_what_follows_it() -> None:
    (link,) = links("See [the *other*\n`FILE`](FILE.md) \u00a72 and more.")

    assert (link.text, link.after) == ("the other FILE", " \u00a72 and more.")


def test_a_document_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "CUDA.md").open("wb") as made:
        made.truncate(100 << 20)

    with pytest.raises(DocumentError, match=rf"CUDA.md: 104857600 bytes is too large .* at most {LARGEST}"):
        read_document(tmp_path / "CUDA.md")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x7fELF\xff\xfe", r"is no UTF-8 text \(byte 4\)"),
        (b"# a\0b", "holds NUL bytes, so it is no text"),
    ],
)
def test_garbage_is_no_document(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "CUDA.md").write_bytes(content)

    with pytest.raises(DocumentError, match=words):
        read_document(tmp_path / "CUDA.md")


def test_a_document_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="can not be read: No such file"):
        read_document(tmp_path / "CUDA.md")


@pytest.mark.parametrize("text", ["`x\n" * 2000, "[" * 2000, "> " * 2000, "- " * 2000, "*a " * 2000])
def test_nothing_that_is_written_breaks_the_reader(text: str) -> None:
    assert parse(text).headings == ()


def test_shell_lines_go_on_after_a_backslash() -> None:
    assert shell_lines("```bash\na \\\n  b\nc\n```\n```\nd\n```\n") == ["a   b", "c"]
