"""The fixtures for those who write specs. They are there only in a run with `--gpus`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import platformdirs
import pytest

from pytest_cudaboot.errors import CanarySilentError, CommandError, CudabootError, NotAsDocumentedError
from pytest_cudaboot.model import CellKey, Gpu
from pytest_cudaboot.probes.process import Completed, ProcessGroup, run_command, start_process
from pytest_cudaboot.project import Project, find_project
from pytest_cudaboot.rules.selection import rebound
from pytest_cudaboot.run.evidence import KEY, Evidence
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.iree import compiled, iree_config, require_own_cards
from pytest_cudaboot.run.nets import Net, load_net
from pytest_cudaboot.run.worker import WORKER, Worker


class Runner:
    """Runs a command as a user would, with this worker's pin, and within what is left of the test's budget."""

    def __init__(self, worker: Worker, evidence: Evidence, cwd: Path) -> None:
        self._worker = worker
        self._evidence = evidence
        self._cwd = cwd

    def __call__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        device: bool = True,
        check: bool = True,
    ) -> Completed:
        """Run it to its end.

        :param argv: as a shell has it: `NAME=VALUE` words may come first, and the literal index of a documented
            `CUDA_VISIBLE_DEVICES=0` is rebound to this worker's card.
        :param cwd: working directory; the test's own folder if not given.
        :param env: changes to the pinned environment; None unsets a variable.
        :param device: whether it may touch the card. If so, the warm device process leaves the card first; if
            not, the card is hidden from it.
        :raises CommandError: a recipe to run it again, if it fails and `check` is set.
        """
        assigned, words = rebound([os.fspath(word) for word in argv], self._worker.devices.gpus)
        changed = self._begin({**assigned, **(env or {})}, device=device)
        try:
            return run_command(
                words,
                cwd=cwd or self._cwd,
                env=changed,
                budget=self._evidence.left,
                check=check,
                pass_fds=self._worker.devices.locks if device else (),
            )
        except CommandError as error:
            if device:
                self._worker.devices.set_aside(error.survivors)
            raise

    @contextmanager
    def background(
        self,
        argv: Sequence[str],
        output: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Iterator[ProcessGroup]:
        """Have it run beside the test, so that it can be looked at; it is ended with the block.

        :param output: where its stdout and stderr go.
        """
        with output.open("wb") as stream:
            changed = self._begin(env, device=True)
            group = start_process(
                argv,
                cwd=cwd or self._cwd,
                env=changed,
                stdout=stream,
                stderr=stream,
                pass_fds=self._worker.devices.locks,
            )
            try:
                yield group
            finally:
                self._worker.devices.set_aside(group.kill().survivors)

    def _begin(self, env: Mapping[str, str | None] | None, *, device: bool) -> dict[str, str]:
        """Count the act, clear the card, and give the command's environment."""
        self._evidence.act()
        if device:
            self._worker.devices.retire()
            self._worker.devices.enter()
        changed = {**self._worker.devices.environment, **({} if device else {"CUDA_VISIBLE_DEVICES": ""})}
        for name, value in (env or {}).items():
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = value
        return changed


@pytest.fixture(autouse=True)
def _cudaboot_cell(request: pytest.FixtureRequest) -> CellKey | None:
    """The cell that the test speaks for; it exists so that a test can be parametrized by it."""
    cell: CellKey | None = getattr(request, "param", None)
    return cell


@pytest.fixture(scope="session")
def _worker(request: pytest.FixtureRequest) -> Worker:
    return request.config.stash[WORKER]


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """The recorder of this test: figures, facts, where it ran."""
    recorder: Evidence = request.node.stash[KEY]
    return recorder


@pytest.fixture
def measure(evidence: Evidence) -> Callable[..., None]:
    """`measure(step_ms=0.4)` adds figures to the cell."""
    return evidence.measure


@pytest.fixture
def run(_worker: Worker, evidence: Evidence, tmp_path: Path) -> Runner:
    """Run a command with this worker's pin."""
    return Runner(_worker, evidence, tmp_path)


@pytest.fixture(scope="session")
def gpu(_worker: Worker) -> Gpu:
    """The card of this worker."""
    if _worker.gpu is None:
        pytest.skip("this worker has no card")
    return _worker.gpu


@pytest.fixture
def gpus(_worker: Worker) -> tuple[Gpu, ...]:
    """The cards of the test, where it takes several at once; else those that the run was asked for."""
    held = _worker.devices.gpus
    return held if len(held) > 1 else _worker.plan.gpus


@pytest.fixture(scope="session")
def project(_worker: Worker) -> Project:
    """The checkout under test."""
    root, document = Path(_worker.plan.project), _worker.plan.document
    return find_project(str(root), root, str(Path(document).relative_to(root)) if document else None)


@pytest.fixture(scope="session")
def pjrt_shim(project: Project, _worker: Worker) -> Path:
    """The XLA shim, built from the project's sources by the documented line into a private folder."""
    from pytest_cudaboot.lowerers.build import build_shim

    line = _worker.plan.build_line
    if line is None:
        pytest.skip(f"no shim: {project.conditions()['shim']}")
    return build_shim(project.path, builds(), env=_worker.environ, line=line.words)


@pytest.fixture(scope="session")
def pjrt_plugin(_worker: Worker) -> Path:
    """The PJRT plugin of this run's platform: the CUDA one on cards, else the CPU one."""
    if _worker.plan.plugin is None:
        pytest.skip(f"no PJRT plugin: {_worker.plan.plugin_facts['absence']}")
    return Path(_worker.plan.plugin)


@pytest.fixture(scope="session")
def cuda_plugin(_worker: Worker) -> Path:
    """The installed CUDA plugin, with or without a card."""
    if _worker.plan.cuda_plugin is None:
        pytest.skip("no CUDA plugin is installed")
    return Path(_worker.plan.cuda_plugin)


@pytest.fixture
def open_lowerer(
    _worker: Worker, evidence: Evidence, request: pytest.FixtureRequest
) -> Callable[[str], LowererHandle]:
    """A function that opens a lowerer by its name, on this worker's device; the one before it leaves the device."""

    def open_named(name: str) -> LowererHandle:
        offer = _worker.plan.offers.of(name)
        if offer is not None:
            handle = _worker.devices.open(_worker.offered(offer), evidence)
            evidence.note(lowerer=name, facts=handle.facts)
        elif name == "iree":
            handle = _worker.devices.open(iree_config(_worker), evidence)
            require_own_cards(handle.facts, _worker.devices.gpus)
            evidence.note(lowerer=name, facts=handle.facts)
        else:
            shim = request.getfixturevalue("pjrt_shim")
            handle = _worker.devices.open(_worker.config(name, shim, {}), evidence)
            evidence.note(lowerer=name, plugin=_worker.plan.plugin_facts, facts=handle.facts)
        return handle

    return open_named


@pytest.fixture
def lowerer(_cudaboot_cell: CellKey | None, open_lowerer: Callable[[str], LowererHandle]) -> LowererHandle:
    """The cell's lowerer, in a device process that has proved its pin."""
    return open_lowerer(_cudaboot_cell.lowerer if _cudaboot_cell and _cudaboot_cell.lowerer else "xla")


@pytest.fixture
def load(
    _worker: Worker, evidence: Evidence, request: pytest.FixtureRequest
) -> Callable[[LowererHandle, Path], SessionHandle]:
    """A function that has a lowerer load a graph: StableHLO text as it is for XLA, its compiled module for IREE."""

    def load_one(handle: LowererHandle, path: Path) -> SessionHandle:
        if handle.name != "iree" or path.suffix != ".mlir":
            return handle.open_session(path)
        stored = compiled(request.getfixturevalue("modules"), path, _worker.devices.gpus, evidence)
        return handle.open_session(stored.path, source=path)

    return load_one


@pytest.fixture
def session(
    lowerer: LowererHandle, load: Callable[[LowererHandle, Path], SessionHandle]
) -> Iterator[Callable[[Path], SessionHandle]]:
    """A function that loads an artifact, given its path; what is open at the test's end is closed."""
    opened: list[SessionHandle] = []

    def open_one(path: Path) -> SessionHandle:
        opened.append(load(lowerer, path))
        return opened[-1]

    yield open_one
    if lowerer.alive:
        for one in opened:
            one.close()


@pytest.fixture
def net(request: pytest.FixtureRequest, project: Project) -> Net:
    """Each net of the project, one test a net."""
    return load_net(project, request.param)


@pytest.fixture
def canary() -> Callable[..., AbstractContextManager[None]]:
    """A context manager that takes a pattern: its block must fail, with a message that matches.

    A second word says what is tried, with its version; it is told where nothing fails.
    """

    @contextmanager
    def must_fail(pattern: str, subject: str = "") -> Iterator[None]:
        try:
            yield
        except CudabootError as error:
            if not re.search(pattern, str(error)):
                raise NotAsDocumentedError(f"failed, but not as documented ({pattern!r}): {error}") from error
        else:
            tried = f"{subject}: " if subject else ""
            raise CanarySilentError(f"{tried}nothing failed; documented is {pattern!r}")

    return must_fail


def builds() -> Path:
    """The machine-wide folder for what is built once, keyed by its sources."""
    return platformdirs.user_cache_path("cudaboot") / "builds"
