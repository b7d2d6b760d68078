"""`cudaboot`: questions about a machine, a catalogue and a recorded run. It runs no test and touches no card."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.project import find_project, suite_root
from pytest_cudaboot.report import terminal
from pytest_cudaboot.rules.catalog import Catalog, load_catalog
from pytest_cudaboot.rules.iree_target import DEFAULT_CHIP
from pytest_cudaboot.rules.ledger_lines import read_ledger
from pytest_cudaboot.rules.traces import FIRST_STEPS, TOLERANCE
from pytest_cudaboot.rules.verdict import EXIT_USAGE, judge

COLUMNS = 80


def main(argv: Sequence[str] | None = None) -> int:
    """The console script; its exit status is the answer's."""
    words = _parser().parse_args(argv)
    try:
        status: int = words.answer(words)
    except UsageError as error:
        sys.stderr.write(f"cudaboot: {error}\n")
        return EXIT_USAGE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cudaboot", description="Questions beside `pytest --gpus`")
    parser.add_argument("--catalog", metavar="FILE", help="Another catalogue than the acceptance suite's")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_doctor(
        commands.add_parser("doctor", help="What this machine has and lacks for `--gpus auto`, and the fix")
    )
    _add_compile(commands.add_parser("compile", help="Fill a folder with a project's compiled modules"))
    _add_explain(
        commands.add_parser(
            "explain", help="What a spec checks, why, from which sentence, and what to do when it is red"
        )
    )
    _add_document(commands.add_parser("doc", help="What a bring-up document says, and which specs encode it"))
    _add_first_bad(
        commands.add_parser(
            "first-bad", help="Which operation of a graph a lowerer computes wrongly on the CPU; 1 if one"
        )
    )
    replay = commands.add_parser("replay", help="Judge a recorded run again, by the rules of today")
    replay.add_argument("ledger", metavar="LEDGER")
    replay.set_defaults(answer=_replay)
    _add_traces(
        commands.add_parser("traces", help="Whether two trainers' JSON lines agree; 1 if they do not")
    )
    return parser


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--project", metavar="DIR", default=".", help="Checkout whose .venv comes first")
    doctor.add_argument("--json", action="store_true", help="Print the answer as JSON")
    doctor.set_defaults(answer=_doctor)


def _add_compile(compiling: argparse.ArgumentParser) -> None:
    compiling.add_argument("folder", metavar="FOLDER", help="What CUDABOOT_MODULE_CACHE will name")
    compiling.add_argument("--project", metavar="DIR", default="reference", help="Checkout with the graphs")
    compiling.add_argument(
        "--target",
        metavar="CHIP",
        action="append",
        help="sm_86 (the default), another chip, or cpu; may be repeated",
    )
    compiling.set_defaults(answer=_compile)


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("--document", metavar="FILE", help="Document whose sentences are told")
    explain.add_argument("spec", metavar="SPEC")
    explain.set_defaults(answer=_explain)


def _add_traces(traces: argparse.ArgumentParser) -> None:
    traces.add_argument("first", metavar="A")
    traces.add_argument("second", metavar="B")
    traces.add_argument(
        "--steps", type=int, default=FIRST_STEPS, metavar="N", help=f"Compare the first N ({FIRST_STEPS})"
    )
    traces.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="SHARE",
        help=f"Allowed difference ({TOLERANCE})",
    )
    traces.set_defaults(answer=_traces)


def _add_first_bad(first_bad: argparse.ArgumentParser) -> None:
    first_bad.add_argument("graph", metavar="GRAPH", help="StableHLO text")
    first_bad.add_argument("--lowerers", metavar="LIST", default="xla,iree", help="xla, iree, or both")
    first_bad.add_argument("--seed", type=int, default=1, metavar="N", help="Of the inputs (1)")
    first_bad.add_argument(
        "--project", metavar="DIR", default="reference", help="Checkout whose XLA shim is built"
    )
    first_bad.add_argument("--to", metavar="DIR", default=".", help="Where a reproducer is written")
    first_bad.set_defaults(answer=_first_bad)


def _first_bad(words: argparse.Namespace) -> int:
    from pytest_cudaboot.probes.toolchain import package_folders
    from pytest_cudaboot.run.searching import Here, search

    project = find_project(words.project, Path.cwd())
    here = Here(environ=os.environ, project=project, site_packages=package_folders())
    names, to = words.lowerers.split(","), Path(words.to)
    return search(Path(words.graph), names, here, seed=words.seed, folder=to, out=sys.stdout)


def _traces(words: argparse.Namespace) -> int:
    from pytest_cudaboot.report.traces import traces

    if words.steps < 1:
        raise UsageError(f"--steps {words.steps} compares nothing; 1 or more is wanted")
    if not 0.0 <= words.tolerance < math.inf:
        raise UsageError(f"--tolerance {words.tolerance} is no share of a value; 0.01 is one in a hundred")
    paths = Path(words.first), Path(words.second)
    return traces(*paths, steps=words.steps, tolerance=words.tolerance, out=sys.stdout)


def _add_document(doc: argparse.ArgumentParser) -> None:
    commands = doc.add_subparsers(required=True, metavar="COMMAND")
    coverage = commands.add_parser("coverage", help="Which part of it no spec encodes; 1 if there is one")
    coverage.add_argument("--json", action="store_true", help="Print the answer as JSON")
    coverage.set_defaults(answer=_coverage)
    review = commands.add_parser("review", help="Accept it as it is now, and write that down")
    review.add_argument(
        "--to", metavar="OUT", help="File to write instead of cudaboot-document.toml beside the document"
    )
    review.add_argument(
        "--bind", metavar="LINE=SPEC", action="append", default=[], help="Bind what stands on a line to specs"
    )
    review.set_defaults(answer=_review)
    check = commands.add_parser("check", help="What it says against itself and its tree; 1 if anything")
    check.add_argument("--tree", metavar="DIR", help="Checkout that it speaks of, if not the one it lies in")
    check.add_argument("--json", action="store_true", help="Print the answer as JSON")
    check.add_argument("file", metavar="FILE")
    check.set_defaults(answer=_check)
    incidents = commands.add_parser("incidents", help="Which spec catches which incident, as Markdown")
    incidents.set_defaults(answer=_incidents)
    for command in (coverage, review):
        command.add_argument(
            "--bindings", metavar="FILE", help="What was remembered, in place of what is found"
        )
        command.add_argument("file", metavar="FILE")


def _coverage(words: argparse.Namespace) -> int:
    from pytest_cudaboot.report import documents

    path, known = Path(words.file), Path(words.bindings) if words.bindings else None
    return documents.coverage(path, _catalog(words), known, as_json=words.json, out=sys.stdout)


def _check(words: argparse.Namespace) -> int:
    from pytest_cudaboot.report import documents

    tree = Path(words.tree) if words.tree else None
    return documents.check(Path(words.file), tree, as_json=words.json, out=sys.stdout)


def _review(words: argparse.Namespace) -> int:
    from pytest_cudaboot.report import documents

    path, known = Path(words.file), Path(words.bindings) if words.bindings else None
    return documents.review(
        path,
        _catalog(words),
        known,
        binds=documents.read_binds(words.bind),
        to=Path(words.to) if words.to else None,
        out=sys.stdout,
    )


def _doctor(words: argparse.Namespace) -> int:
    from pytest_cudaboot.report.doctor import Places, doctor

    project = Path(words.project)
    if not project.is_dir():
        raise UsageError(f"--project {words.project!r} is not a folder")
    return doctor(Places.here(os.environ, project), as_json=words.json, out=sys.stdout)


def _compile(words: argparse.Namespace) -> int:
    from pytest_cudaboot.probes.toolchain import package_folders
    from pytest_cudaboot.run.filling import fill

    return fill(
        Path(words.folder).absolute(),  # the compiler runs elsewhere
        find_project(words.project, Path.cwd()),
        words.target or [DEFAULT_CHIP],
        os.environ,
        site_packages=package_folders(),
        out=sys.stdout,
    )


def _catalog(words: argparse.Namespace) -> Catalog:
    named = Path(words.catalog) if words.catalog else suite_root() / "acceptance" / "catalog.toml"
    return load_catalog(named, lowerers=None)


def _explain(words: argparse.Namespace) -> int:
    from pytest_cudaboot.report.explain import explain

    catalog = _catalog(words)
    spec = catalog.specs.get(words.spec)
    if spec is None:
        near = difflib.get_close_matches(words.spec, list(catalog.specs), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"no spec {words.spec!r} in {catalog.path}{meant}; it has: {', '.join(catalog.specs)}"
        )
    shipped = None if words.catalog else find_project("reference", Path.cwd()).document
    document = Path(words.document) if words.document else shipped
    return explain(spec, catalog, document, sys.stdout)


def _incidents(words: argparse.Namespace) -> int:
    from pytest_cudaboot.rules.incidents import load_incidents, load_planned, render

    folder = _catalog(words).path.parent
    planned = load_planned(folder / "planned.toml")
    sys.stdout.write(render(load_incidents(folder / "incidents.toml"), planned))
    return 0


def _replay(words: argparse.Namespace) -> int:
    catalog, path = _catalog(words), Path(words.ledger)
    try:
        records = read_ledger(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError as error:
        raise UsageError(f"{path}: can not be read: {error.strerror}") from error
    verdict = judge(catalog, records)
    width = shutil.get_terminal_size((COLUMNS, 24)).columns
    for line in (*terminal.cells(verdict, width), *terminal.closing(verdict, str(path))):
        sys.stdout.write("".join(text for text, _ in line) + "\n")
    return int(verdict["exit"])
