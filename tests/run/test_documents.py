"""A document that contradicts itself is shown as such, and does not stop a toolchain that works."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_cudaboot.cli import main
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.rules.catalog import load_catalog
from tests.run.gate import HELD, WORKS, Gate

SUITE = suite_root() / "acceptance"
TABLE = '\n[{spec.id}]\nkind = "{spec.kind}"\ntitle = "T"\nheading = "Up"\ntrack = "document"\n'
UP = """\
# Up

Our box is a host with 2 cards. See [the rest](REST.md).

## Fast path: XLA

This is the default lowerer, and all figures are with it. The lean-toolchain is 4.14.0.

```bash
export IREE_BACKEND=cuda
./trainer mlp data   # compiles a vmfb first
lake build           # with Lean 4.12.0
```

\u26a0 Leave `IREE_CHIP` unset: the default is `sm_86`.

For other cards: V100 = `sm_70`, L4 = `sm_89`. The same machine has 3 GPUs.

A compile with IREE takes 12 min. A third of a card is 3.00 GiB (4294967296 bytes).
"""
BROKEN = {
    *("doc.coverage", "doc.drift", "intro.links", "intro.box-size", "step0.lean-versions", "doc.arithmetic"),
    *("doc.lowerer", "doc.advice", "doc.every-figure"),
}


@pytest.fixture
def checkout(gate: Gate) -> Path:
    """A project with that document, beside a suite of the specs that speak of documents and of one that executes."""
    specs = [spec for spec in load_catalog(SUITE / "catalog.toml").specs.values() if spec.track == "document"]
    told = [spec for spec in specs if spec.id != "mem.figures"]  # its test stands with the memory's
    gate.suite(HELD, WORKS + "".join(TABLE.format(spec=spec) for spec in told))
    # In this process another module has the file's own name already.
    shutil.copy2(SUITE / "test_document.py", gate.path / "test_of_the_document.py")
    (gate.path / "checkout" / "ffi").mkdir(parents=True)
    (gate.path / "checkout" / "CUDA.md").write_text(UP)
    return gate.path / "checkout"


def test_a_toolchain_is_accepted_whatever_the_document_says_of_itself(gate: Gate, checkout: Path) -> None:
    result = gate.here("--cudaboot-project", str(checkout))

    assert (result.ret, gate.verdict["verdict"]) == (0, "accept")
    assert gate.verdict["tracks"]["document"] == "reject"
    assert {spec for spec, outcome in gate.outcomes.items() if outcome == "broken"} == BROKEN
    contradiction = gate.cells["doc.lowerer"]["evidence"]["contradictions"][0]
    assert contradiction["here"].startswith("CUDA.md:11: ./trainer mlp data")
    assert contradiction["there"].startswith("CUDA.md:7: This is the default lowerer")


def test_the_document_decides_when_it_is_asked_to(gate: Gate, checkout: Path) -> None:
    tracks = ("--cudaboot-tracks", "toolchain,document")

    result = gate.here("--cudaboot-project", str(checkout), *tracks)

    assert (result.ret, gate.verdict["verdict"]) == (1, "reject")


def test_an_edited_warning_shows_exactly_its_spec_as_drifted(gate: Gate, checkout: Path) -> None:
    document = checkout / "CUDA.md"
    main(
        ["--catalog", str(gate.path / "catalog.toml"), "doc", "review", "--bind", "15=a.works", str(document)]
    )
    document.write_text(UP.replace("Leave `IREE_CHIP` unset", "Leave `IREE_CHIP` alone"))

    gate.here("--cudaboot-project", str(checkout))

    cell = gate.cells["doc.drift"]
    assert (cell["outcome"], cell["evidence"]["drifted_specs"]) == ("broken", ["a.works"])
    assert gate.verdict["verdict"] == "accept"
    assert sorted(path.name for path in checkout.iterdir()) == ["CUDA.md", "cudaboot-document.toml", "ffi"]
