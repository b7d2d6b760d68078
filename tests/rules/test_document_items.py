"""What of a document is checkable, and where it stands."""

from __future__ import annotations

from textwrap import dedent

import pytest

from pytest_cudaboot.rules.document_items import Item, digest, has_figure, is_warning, items

TEXT = dedent("""\
    # Up

    Plain words. The card takes 250 W.

    > Somebody checked that already.

    ## Run

    ```bash
    # first
    make -j4 \\
      all   # builds
    # Should show: done

    ./run data
    # Do NOT set MODE here.
    ```

    ⚠ The mode bites. It always did.

    **A stale file gotcha.** Old ones stay.

    ```
    ld: error: undefined symbol: x
    a ──> b
    $ ./again
    ```

    ```c
    int error = 3;
    ```

    - 9 of 10 pass
    """)


def told(kind: str) -> list[tuple[int, str]]:
    return [(item.line, item.text) for item in items(TEXT) if item.kind == kind]


def test_commands_stand_with_their_comments_and_go_over_line_ends() -> None:
    assert told("command") == [
        (11, "# first make -j4 all # builds # Should show: done"),
        (15, "./run data"),
        (26, "./again"),
    ]


def test_warnings_are_marked_labelled_quoted_or_commanded() -> None:
    assert told("warning") == [
        (5, "Somebody checked that already."),
        (16, "Do NOT set MODE here."),
        (19, "⚠ The mode bites."),
        (19, "It always did."),
        (21, "A stale file gotcha."),
        (21, "Old ones stay."),
    ]


def test_claims_are_sentences_with_figures() -> None:
    assert told("claim") == [(3, "The card takes 250 W."), (33, "9 of 10 pass")]


def test_output_is_told_from_drawings_and_from_sources() -> None:
    assert told("output") == [(24, "ld: error: undefined symbol: x")]


def test_the_rest_is_prose_and_headings_are_none() -> None:
    assert told("prose") == [(3, "Plain words.")]


@pytest.mark.parametrize(
    "text",
    [
        "takes ~5 GB",
        "2.3-4.9x slower",
        "73 % of it",
        "`>=3.12.0rc20260428` is the pin",
        "v4.32.2",
        "6\u00d7 RTX",
        "Ada is `sm_89`",
        "It was six cards",
        "0.97",
        "Python 3.10+",
        "sixteen, then four idle GPUs",
        "12 of them",
    ],
)
def test_a_figure_is_seen(text: str) -> None:
    assert has_figure(text)


@pytest.mark.parametrize(
    "text",
    [
        "see Step 4",
        "skip to steps 2 and 3",
        "IREE_BUILD.md §2",
        "iree#24282",
        "float32 and f32",
        "libcudart.so.12",
        "`resnet50in`",
        "one process per card",
        "data_batch_1.bin",
    ],
)
def test_a_digit_in_a_name_is_no_figure(text: str) -> None:
    assert not has_figure(text)


@pytest.mark.parametrize(
    "text", ["do not set it", "x — do not set it", "You must not", "Beware of it", "⚠️ it"]
)
def test_a_command_to_leave_something_warns(text: str) -> None:
    assert is_warning(text)


@pytest.mark.parametrize("text", ["The parts do not know it", "do nothing special", "it never fails"])
def test_a_statement_does_not_warn(text: str) -> None:
    assert not is_warning(text)


def test_a_hash_counts_blanks_once_and_words_each() -> None:
    assert digest("a  b\nc") == digest("a b c") != digest("a b d")


def test_where_an_item_stands_does_not_change_its_hash() -> None:
    def only(text: str) -> Item:
        (item,) = items(text)
        return item

    moved = only("\n\n# H\n\nIt takes\n3 GB.")
    assert only("# H\nIt takes **3** GB.").key == moved.key
    assert only("# Other\nIt takes 3 GB.").key != moved.key
