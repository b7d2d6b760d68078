"""Contradictions of a document with itself and with its tree: each rule is seen to object, and to keep silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.document_conflicts import RULES, conflicts, reading_of
from pytest_cudaboot.rules.document_findings import Finding
from pytest_cudaboot.rules.document_tree import Tree

FAST = "## Fast path: XLA\n\nThis is the default lowerer.\n\n"
RUN = "```bash\n{}\n```\n"


def found(root: Path, text: str, *rules: str, **files: str) -> list[Finding]:
    """What the rules find in a document that lies in a tree of these files (`__` is a dot, `_S_` a slash)."""
    for name, content in files.items():
        path = root / name.replace("_S_", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (root / "UP.md").write_text(text)
    return list(conflicts(*reading_of(root / "UP.md"), *rules))


def places(findings: list[Finding]) -> list[tuple[str, str]]:
    return [
        (f"{finding.here.file}:{finding.here.line}", f"{finding.there.file}:{finding.there.line}")
        for finding in findings
    ]


CONTRADICTIONS = [
    pytest.param(
        "versions",
        "Lean 4.20.1 is the pin.\n\n" + RUN.format("git pull  # brings lean-toolchain 4.21.0"),
        ("UP.md:1", "UP.md:4"),
        "Lean is 4.20.1, and is 4.21.0",
        id="two versions of one tool",
    ),
    pytest.param(
        "card-counts",
        "Our box is two RTX cards.\n\nThe machine: 3\u00d7 RTX 4090.\n",
        ("UP.md:1", "UP.md:3"),
        "the box has 2 cards, and has 3",
        id="two numbers of cards",
    ),
    pytest.param(
        "device-lists",
        "Use `CUDA_VISIBLE_DEVICES=0,1`,\nand every list is\n`0,1,2` by now.\n",
        ("UP.md:1", "UP.md:3"),
        "the devices are 0,1, and are 0,1,2",
        id="two lists of devices",
    ),
    pytest.param(
        "arithmetic",
        "It takes 3.00 GiB (4294967296 bytes).",
        ("UP.md:1", "UP.md:1"),
        "4294967296 bytes are 4.00 GiB, not 3.00",
        id="a size that is not its bytes",
    ),
    pytest.param(
        "arithmetic",
        "You get 61 % of a card.\nThe plugin takes `fraction = 0.65`.",
        ("UP.md:1", "UP.md:2"),
        "61 % is not 0.65",
        id="a percentage beside another fraction",
    ),
    pytest.param(
        "arithmetic",
        "With `fraction = 0.5` a 24 GB card gives 11.50 GiB.",
        ("UP.md:1", "UP.md:1"),
        "0.5 of 24 GB is 12 GiB or 11.18 GiB, not 11.50 GiB",
        id="a product that is not its factors'",
    ),
    pytest.param(
        "arithmetic",
        "The pool is 20.00 GiB.\n\nA peak of 10.50 GiB is 70 % of the pool.",
        ("UP.md:3", "UP.md:1"),
        "10.50 GiB is 52 % of 20 GiB, and 70 % of nothing here",
        id="a share of nothing",
    ),
    pytest.param(
        "unexercised-lowerer",
        FAST + "## Smoke\n\n" + RUN.format("./train data  # builds the vmfb, then trains"),
        ("UP.md:8", "UP.md:3"),
        "this is to run iree, and xla is the default that nothing changes here",
        id="a comment that names the other lowerer",
    ),
    pytest.param(
        "unexercised-lowerer",
        FAST + RUN.format("export IREE_BACKEND=cuda\n./train data"),
        ("UP.md:7", "UP.md:3"),
        "this is to run iree",
        id="settings of the other lowerer",
    ),
    pytest.param(
        "unset-advice",
        "Leave `IREE_CHIP` unset.\n\n" + RUN.format("IREE_CHIP=sm_89 ./train data"),
        ("UP.md:1", "UP.md:4"),
        "IREE_CHIP is to be left unset, and is set",
        id="advice that a line ignores",
    ),
    pytest.param(
        "unset-advice",
        "The default is `sm_86`; do not set IREE_CHIP.\n\nCards: V100 = `sm_70`, L4 = `sm_89`.",
        ("UP.md:1", "UP.md:3"),
        "IREE_CHIP is to be left unset, which is sm_86, and V100 is sm_70",
        id="hardware below the default",
    ),
    pytest.param(
        "one-variable",
        "`IREE_BACKEND` picks the flags and the device through one variable.\n\nThen set `IREE_DEVICE=cuda`.",
        ("UP.md:1", "UP.md:3"),
        "IREE_BACKEND is said to be the one variable for the device, and there is IREE_DEVICE",
        id="one variable, and another",
    ),
    pytest.param(
        "one-variable",
        "`IREE_BACKEND` sets the device via one knob.\n\nThe device is cuda unless `-DUSE_HIP` is given.",
        ("UP.md:1", "UP.md:3"),
        "which -DUSE_HIP decides",
        id="one variable, and a switch of the build",
    ),
    pytest.param(
        "every-figure",
        "All figures are with XLA.\n\nAn IREE compile takes 12 min.",
        ("UP.md:1", "UP.md:3"),
        "every figure is said to be of xla, and this one is not",
        id="every figure but one",
    ),
    pytest.param(
        "bare-package",
        "## Prerequisites\n\n- `libcublas`\n\n## Go\n\nIt brings the plugin and nothing else.\n",
        ("UP.md:3", "UP.md:7"),
        "libcublas is required, nothing installs it",
        id="a library that nothing brings",
    ),
]


@pytest.mark.parametrize(("rule", "text", "where", "problem"), CONTRADICTIONS)
def test_a_contradiction_is_found_with_both_places(
    tmp_path: Path, rule: str, text: str, where: tuple[str, str], problem: str
) -> None:
    (finding,) = found(tmp_path, text, *RULES)

    assert (finding.rule, places([finding])) == (rule, [where])
    assert problem in finding.problem
    assert str(finding).count("\n  UP.md:") == 2


@pytest.mark.parametrize(
    "text",
    [
        "Lean 4.20.1 is the pin. It was Lean 4.19.0.",
        "Lean 4.20.1 and gcc 13.2.0.",
        "With Lean 4.1.0 and 4.2.0 it fails.\n\nLean 4.3.0 is the pin.",
        "Any `iree>=3.12.0`; IREE 3.13.1 here.",
        "The box has 4 cards. It was six cards. Train on two cards.",
        "`CUDA_VISIBLE_DEVICES=0` or `=1`.",
        "It takes 11.68 GiB (12543066112 bytes), `fraction = 0.75`, of 15.57 GiB.",
        "You get 75 % with `fraction = 0.75`.",
        "A 16 GB card with `fraction = 0.75` gives 12.00 GiB.",
        "The pool is 20.00 GiB.\n\nA peak of 10.50 GiB is 52 % of it.",
        FAST + RUN.format("LEAN_MLIR_LOWERER=iree ./train data  # builds the vmfb"),
        FAST + RUN.format("export LEAN_MLIR_LOWERER=iree\n./train data  # with IREE"),
        FAST + RUN.format("iree-compile net.mlir -o net.vmfb  # IREE"),
        "The default is `sm_86`; leave `IREE_CHIP` unset. V100 = `sm_70`, L4 = `sm_89`. V100 needs `IREE_CHIP=sm_70`.",
        "All figures are with XLA unless IREE is named.\n\nAn IREE compile takes 12 min.",
        "All figures are with XLA.\n\nXLA took 2 ms, IREE took 3 ms.",
        "## Prerequisites\n\n- `libcublas`\n\n"
        + RUN.format("pip install nvidia-libcublas  # the plugin and nothing else"),
    ],
)
def test_what_goes_together_is_no_contradiction(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text, *RULES) == []


def test_a_pin_of_the_tree_is_a_mention(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "Lean 4.20.1 it is.", "versions", **{"lean-toolchain": "lean4:v4.21.0\n"})

    assert places([finding]) == [("UP.md:1", "lean-toolchain:1")]


def test_links_lead_to_files_anchors_and_sections(tmp_path: Path) -> None:
    text = (
        "# A\n\n[no](NO.md), [yes](B.md#up), [not](B.md#down),\n[own](#a), [none](#b),"
        " [B](B.md) §2 and §4, [folder](sub), [far](https://x.org/NO.md)\n"
    )

    findings = found(tmp_path, text, "links", B__md="# Up\n## 2. Two\n", sub_S_x__md="")
    assert [finding.problem for finding in findings] == [
        "NO.md is not there",
        "no heading #down in B.md",
        "no heading #b",
        "no §4 in B.md",
    ]


def test_a_document_in_a_folder_speaks_of_the_tree_above(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "UP.md").write_text("[up](../A.md), [beside](B.md)\n")
    (tmp_path / "A.md").write_text("")

    (finding,) = conflicts(*reading_of(tmp_path / "docs" / "UP.md"), "links")
    assert (str(finding.here), str(finding.there)) == (
        "docs/UP.md:1: [beside](B.md)",
        "docs/B.md: no such file",
    )


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("`MODE` is in `src/a.lean:2`", None),
        ("`MODE` is in `a.lean:2`", None),
        ("`MODE` is in `src/a.lean:40`", "src/a.lean:40: line 40"),
        ("`MODE` is in `src/a.lean:99`", "src/a.lean: has 40 lines"),
        ("`MODE` is in `src/b.lean:2`", "src/b.lean: no such file in the tree"),
        ("see `src/a.lean:40`", None),
    ],
)
def test_a_line_of_a_file_has_what_is_said_of_it(tmp_path: Path, sentence: str, words: str | None) -> None:
    source = "".join(f"line {number}\n" for number in range(1, 41)).replace("line 3\n", 'def MODE := "x"\n')

    findings = found(tmp_path, sentence, "line-references", src_S_a__lean=source)
    assert [str(finding.there) for finding in findings] == ([] if words is None else [words])


def test_two_pins_of_one_package(tmp_path: Path) -> None:
    text = "As in [the other](B.md):\n" + RUN.format("pip install 'iree>=3.12' jax==1.0")
    files = {"B__md": "It needs iree>=3.11.", "requirements__txt": "jax==1.0\niree>=3.12\n"}

    findings = found(tmp_path, text, "pins", **files)
    assert [(finding.problem, str(finding.there)) for finding in findings] == [
        ("iree>=3.12, and >=3.11", "B.md:1: It needs iree>=3.11.")
    ]


def test_a_variable_that_nothing_reads(tmp_path: Path) -> None:
    text = (
        "Set `MY_MODE=1`, `MY_RATE=2`, not `MY_OTHER=3`.\n\n"
        + RUN.format("MY_SIZE=4 MY_COUNT=5 CUDA_HOME=/x ./train -DMY_FLAG=1 ${MY_COUNT:-6}")
        + "\nThe constant `MY_LIMIT` too. Then `MY_SPEED=9`.\n"
    )

    findings = found(tmp_path, text, "unread-variables", src_S_a__c='getenv("MY_SIZE"); getenv("MY_SPEEDS");')
    assert [finding.problem for finding in findings] == ["nothing reads MY_SPEED"]
    assert str(findings[0].there) == ".: none of 1 sources names MY_SPEED"


def test_sources_that_know_no_variable_are_of_another_project(tmp_path: Path) -> None:
    assert found(tmp_path, "Set `MY_MODE=1`.", "unread-variables", a__c="int main;") == []


def test_a_second_variable_may_be_in_the_sources_alone(tmp_path: Path) -> None:
    text = "`IREE_BACKEND` picks the device through one variable."

    (finding,) = found(tmp_path, text, "one-variable", ffi_S_a__c='\nx = getenv("IREE_DEVICE");')
    assert str(finding.there) == 'ffi/a.c:2: x = getenv("IREE_DEVICE");'


def test_lists_in_scripts_count_and_those_of_tests_do_not(tmp_path: Path) -> None:
    files = {
        "run__sh": "\nCUDA_VISIBLE_DEVICES=0,1 x\n",
        "go__sh": "CUDA_VISIBLE_DEVICES=0,1,2",
        "tests_S_a__sh": "CUDA_VISIBLE_DEVICES=7,8",
    }

    findings = found(tmp_path, "No word.", "device-lists", **files)
    assert places(findings) == [("go.sh:1", "run.sh:2")]


def test_our_own_document_is_of_one_mind() -> None:
    reading, tree = reading_of(suite_root() / "fixtures" / "reference" / "BOOTSTRAP.md")

    assert [str(finding) for finding in conflicts(reading, tree)] == []


def test_a_tree_is_looked_at_without_following_links(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (inside / ".git").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.c").write_text("x")
    (inside / "file.c").symlink_to(outside / "secret.c")
    (inside / "folder").symlink_to(outside)
    (inside / ".git" / "hook.sh").write_text("x")
    (inside / "a.c").write_text("x")

    assert Tree(inside).names == ("a.c",)


@pytest.mark.parametrize("text", ["a" * 50_000, "a-" * 25_000, "/a.b" * 12_000, "1." * 25_000, "A_" * 25_000])
def test_what_is_no_sentence_does_not_occupy_the_rules(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, f"# Up\n\n{text} = sm_80:1\n", *RULES) == []
