"""The fixtures of the Lean steps: a private copy of the checkout, `lake` in it, and proofs whose result is kept."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import platformdirs
import pytest

from pytest_cudaboot.errors import ProjectError, ToolMissingError
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes import lake as tool
from pytest_cudaboot.probes.patience import alone
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.project import Project, sha256
from pytest_cudaboot.rules.lean import opened, proofs_key, unproved
from pytest_cudaboot.run.budgets import FIXTURES
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.worker import WORKER


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """A private copy of the checkout in which lake may write."""

    root: Path
    program: Path
    environ: Mapping[str, str]

    def alone(self, seconds: float) -> AbstractContextManager[object]:
        """A context manager: of those who write in the copy one at a time, whatever run they are of.

        :param seconds: how long to wait for the others.
        :raises BusyError: that was not enough; the message says who is at work there.
        """
        return alone(self.root.with_suffix(".lock"), seconds, f"at work in {self.root}")

    @property
    def path(self) -> str:
        """PATH with lake's neighbours first: elan's other tools."""
        return f"{self.program.parent}:{self.environ.get('PATH', '')}"


@pytest.fixture(scope="session")
def sandbox(project: Project, request: pytest.FixtureRequest) -> Sandbox:
    """The copy, which outlives the run, so that the next one builds what has changed."""
    environ = request.config.stash[WORKER].environ
    try:
        program = tool.require_lake(environ)
    except ToolMissingError as miss:
        pytest.skip(str(miss))
    folder = platformdirs.user_cache_path("cudaboot") / "lean"
    pin = project.path / tool.TOOLCHAIN
    whose = hashlib.sha256(bytes(project.path)).hexdigest()[:8]  # checkouts of one name are not each other's
    name = f"{project.path.name}-{whose}-{sha256(pin)[:12] if pin.is_file() else 'unpinned'}"
    copy = folder / "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)
    copy.mkdir(parents=True, exist_ok=True)
    made = Sandbox(root=copy, program=program, environ=environ)
    with made.alone(FIXTURES):
        tool.mirror(project.path, copy)
        tool.seed(project.path, copy)
    return made


@pytest.fixture
def lake(sandbox: Sandbox, run: Runner, evidence: Evidence) -> Callable[..., Completed]:
    """A function that runs lake in the copy, with no card visible."""

    def run_lake(*words: str, env: Mapping[str, str | None] | None = None, check: bool = True) -> Completed:
        variables = {"PATH": sandbox.path, **(env or {})}
        with sandbox.alone(evidence.left):
            return run([sandbox.program, *words], cwd=sandbox.root, env=variables, device=False, check=check)

    return run_lake


@pytest.fixture
def prove(
    sandbox: Sandbox, lake: Callable[..., Completed], tmp_path: Path, evidence: Evidence
) -> Callable[[str], Json]:
    """A function that builds a target of proofs, or recalls that the very same sources were built before.

    It notes what the loader opened meanwhile, and how it came by the result.
    """
    folder = platformdirs.user_cache_path("cudaboot") / "proofs"

    def key_of(target: str) -> str:
        # Of the copy, since that is what is built: somebody may be at work in the checkout.
        return proofs_key(tool.proof_files(sandbox.root), target)

    def prove_one(target: str) -> Json:
        evidence.act()
        key = key_of(target)
        facts = tool.recall(folder, key)
        recalled = facts is not None
        if facts is None:
            facts = _prove(lake, target, tmp_path)
            if key_of(target) == key:  # another run may have brought the copy up to date meanwhile
                tool.keep(folder, key, facts)
        evidence.measure(**{f"{target}_seconds": facts["seconds"]})
        evidence.note(**{target: {**facts, "key": key, "recalled": recalled}})
        return facts

    return prove_one


def _prove(lake: Callable[..., Completed], target: str, scratch: Path) -> Json:
    """Build a target of proofs, and tell what the loader opened meanwhile."""
    began = time.monotonic()
    done = lake("build", target, env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(scratch / "loader")})
    if left_out := unproved(f"{done.stdout}\n{done.stderr}"):
        raise ProjectError(f"lake build {target}: {len(left_out)} proofs are left out: {left_out[0]}")
    libraries = {name for path in scratch.glob("loader.*") for name in opened(path.read_bytes())}
    return {
        "target": target,
        "seconds": round(time.monotonic() - began, 1),
        "opened": sorted(libraries),
        "proved": datetime.now(UTC).isoformat(timespec="seconds"),
    }
