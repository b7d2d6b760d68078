"""The document against itself, against its tree, and against what the specs remember of it. BOOTSTRAP.md"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.catalog import load_catalog
from pytest_cudaboot.rules.document import read_document
from pytest_cudaboot.rules.document_bindings import UNCOVERED
from pytest_cudaboot.rules.document_commands import classify
from pytest_cudaboot.rules.document_conflicts import conflicts, reading_of
from pytest_cudaboot.rules.document_findings import Finding, Reading
from pytest_cudaboot.rules.document_items import COMMAND, items
from pytest_cudaboot.rules.document_review import Reviewed, review_document
from pytest_cudaboot.rules.document_tree import Tree
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.worker import WORKER

Agree = Callable[[str, str], None]
DEFAULT = "## XLA\n\nThis is the default lowerer.\n\n"


@pytest.fixture
def document(project: Project) -> Path:
    """The bring-up document's file."""
    if project.document is None:
        pytest.skip("the project has no bring-up document")
    return project.document


@pytest.fixture
def agree(project: Project, document: Path, evidence: Evidence, tmp_path: Path) -> Agree:
    """A function that has a rule find what is planted, and then nothing in the project's document."""

    def hold(rule: str, planted: str) -> None:
        assert conflicts(Reading("PLANTED.md", planted), Tree(tmp_path), rule), (
            f"{rule} sees nothing any more"
        )
        told(conflicts(*reading_of(document, project.path), rule), evidence)

    return hold


def told(findings: tuple[Finding, ...], evidence: Evidence) -> None:
    """Contradictions are evidence, with both places, before they are a failure."""
    evidence.measure(contradictions=len(findings))
    evidence.note(contradictions=[finding.to_json() for finding in findings])
    if findings:
        pytest.fail("\n".join(str(finding) for finding in findings), pytrace=False)


@pytest.fixture
def reviewed(document: Path, request: pytest.FixtureRequest) -> Reviewed:
    """The document against what this suite remembers of it."""
    catalog = Path(str(request.config.stash[WORKER].plan.catalog))
    return review_document(document, catalog.parent, load_catalog(catalog).specs)


# -- what the specs encode of it -----------------------------------------------------------------------------------


@pytest.mark.spec("doc.coverage")
def test_every_command_warning_and_figure_is_bound_to_a_spec(reviewed: Reviewed, evidence: Evidence) -> None:
    review = reviewed.review
    bare = [f"{reviewed.path.name}:{found.item.line}" for found in review.in_state(UNCOVERED)]

    evidence.measure(bound_percent=round(review.percent(), 1), uncovered=len(bare))
    evidence.note(bindings=reviewed.bindings.path, unknown_specs=review.unknown)
    assert not bare, f"no spec encodes {', '.join(bare)}; see `cudaboot doc coverage {reviewed.path}`"


@pytest.mark.spec("doc.drift")
def test_no_text_has_changed_since_its_spec_was_written(reviewed: Reviewed, evidence: Evidence) -> None:
    drifted = reviewed.review.drifted

    evidence.measure(remembered=len(reviewed.bindings.entries), drifted=len(drifted))
    evidence.note(drifted_specs=drifted)
    accept = f"read them, then `cudaboot doc review {reviewed.path}`"
    assert reviewed.bindings.entries, f"nothing is remembered of this document; {accept}"
    assert not drifted, f"the text of {', '.join(drifted)} has changed; {accept}"


@pytest.mark.spec("doc.orphans")
def test_no_spec_has_lost_its_text(reviewed: Reviewed, evidence: Evidence) -> None:
    orphans = reviewed.review.orphans

    evidence.measure(orphans=len(orphans))
    assert not orphans, f"nothing is left of the text of {', '.join(orphans)}"


@pytest.mark.spec("doc.blocks")
def test_what_the_documents_commands_need(document: Path, evidence: Evidence) -> None:
    classes = [classify(item.text) for item in items(read_document(document)) if item.kind == COMMAND]

    evidence.measure(**{name: classes.count(name) for name in sorted(set(classes))})
    assert classes, f"{document} has no command"


# -- contradictions ------------------------------------------------------------------------------------------------


@pytest.mark.spec("intro.links")
def test_links_lead_somewhere(agree: Agree) -> None:
    agree("links", "See [the other](NOWHERE.md).")


@pytest.mark.spec("intro.box-size")
def test_one_number_of_cards(agree: Agree) -> None:
    agree("card-counts", "The box has 2 H200 GPUs.\n\nThe machine is four cards.")


@pytest.mark.spec("multi.mask-lists")
def test_one_list_of_devices(agree: Agree) -> None:
    agree("device-lists", "`CUDA_VISIBLE_DEVICES=0,1,2,3`, and `export CUDA_VISIBLE_DEVICES=0,1`.")


@pytest.mark.spec("step0.lean-versions")
def test_one_version_of_a_tool(agree: Agree) -> None:
    agree("versions", "The lean-toolchain is 4.14.0.\n\n`lake` brings Lean 4.12.0.")


@pytest.mark.spec("pre.elan-pin")
def test_the_pinned_lean_is_the_documents(
    project: Project, document: Path, tmp_path: Path, evidence: Evidence
) -> None:
    (tmp_path / "lean-toolchain").write_text("leanprover/lean4:v4.12.0\n")
    planted = conflicts(Reading("PLANTED.md", "Lean 4.14.0."), Tree(tmp_path), "versions")
    found = conflicts(*reading_of(document, project.path), "versions")

    assert planted
    told(tuple(finding for finding in found if finding.there.file == "lean-toolchain"), evidence)


@pytest.mark.spec("step2.rocm-same-pin")
def test_a_package_has_one_pin(project: Project, document: Path, tmp_path: Path, evidence: Evidence) -> None:
    (tmp_path / "requirements.txt").write_text("iree-base-compiler>=3.11\n")
    planted = Reading("PLANTED.md", "```sh\npip install 'iree-base-compiler>=3.12'\n```\n")

    assert conflicts(planted, Tree(tmp_path), "pins")
    told(conflicts(*reading_of(document, project.path), "pins"), evidence)


@pytest.mark.spec("step4.line-refs")
def test_lines_of_files_hold_what_is_said_of_them(agree: Agree) -> None:
    agree("line-references", "`MODE` is set in `src/Mode.lean:7`.")


@pytest.mark.spec("doc.arithmetic")
def test_figures_add_up(agree: Agree) -> None:
    agree("arithmetic", "It takes 3.00 GiB (4294967296 bytes).")


@pytest.mark.spec("doc.variables")
def test_variables_are_read_by_something(
    project: Project, document: Path, tmp_path: Path, evidence: Evidence
) -> None:
    (tmp_path / "main.c").write_text('getenv("MY_MODE");')
    planted = conflicts(
        Reading("PLANTED.md", "Set `MY_MODE=1` and `MY_RATE=2`."), Tree(tmp_path), "unread-variables"
    )

    assert planted
    told(conflicts(*reading_of(document, project.path), "unread-variables"), evidence)


@pytest.mark.spec("doc.lowerer")
def test_commands_run_the_lowerer_that_they_speak_of(agree: Agree) -> None:
    agree("unexercised-lowerer", DEFAULT + "```sh\n./trainer data  # compiles a vmfb\n```\n")


@pytest.mark.spec("doc.advice")
def test_advice_is_kept(agree: Agree) -> None:
    agree("unset-advice", "Leave `IREE_CHIP` unset.\n\n```sh\nexport IREE_CHIP=sm_80\n```\n")


@pytest.mark.spec("doc.one-variable")
def test_one_variable_is_one(agree: Agree) -> None:
    agree("one-variable", "`MY_MODE` sets the rate through one variable. There is `MY_RATE=1`.")


@pytest.mark.spec("doc.every-figure")
def test_every_figure_is_every_figure(agree: Agree) -> None:
    agree("every-figure", "All figures are with XLA.\n\nAn IREE compile takes 12 min.")


@pytest.mark.spec("doc.packages")
def test_what_is_required_is_installed(agree: Agree) -> None:
    agree("bare-package", "## Prerequisites\n\n- `libcublas`\n\n## Go\n\nThe plugin and nothing else.")
