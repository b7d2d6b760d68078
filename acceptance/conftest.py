"""What the specs share: a private checkout of the project, its trainer, and how a trainer's output is read."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.lowerers.build import build_program
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.maps import shared_objects
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.project import Project, find_document, suite_root
from pytest_cudaboot.rules.document import read_document, shell_lines
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner, builds
from pytest_cudaboot.run.handles import LowererHandle
from pytest_cudaboot.run.worker import WORKER

from .clients import client  # noqa: F401 - a fixture, which pytest finds here
from .cuda import cuda_view  # noqa: F401 - the same
from .nets import plainest_net

SOURCES = ("ffi", "nets")
SHIM, IREE_SHIM = "libpjrt_ffi.so", "libiree_ffi.so"
# Autotuning may choose another kernel in each process; without it two runs are equal to the last bit.
WITHOUT_AUTOTUNING = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"
ENDLESS = "100000000"  # steps: more than anybody waits for
MARGIN = 2.0  # seconds of budget that are kept for saying what was wrong


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("gpus", None) is None:
        raise pytest.UsageError("the acceptance suite needs --gpus: a list of cards, `all`, `auto` or `none`")


@dataclass(frozen=True, slots=True)
class Trained:
    """What a trainer printed: its header, the records of its steps, and what it evaluated to."""

    header: dict[str, Any]
    steps: list[dict[str, Any]]
    evaluation: dict[str, Any]

    @classmethod
    def read(cls, done: Completed) -> Trained:
        """From the JSON lines of a trainer that ran to its end."""
        header, *steps, evaluation = (json.loads(line) for line in done.stdout.splitlines())
        assert (header["kind"], evaluation["kind"]) == ("header", "eval")
        return cls(header, steps, evaluation)

    @property
    def losses(self) -> list[float]:
        return [float(step["loss"]) for step in self.steps]


@pytest.fixture(scope="session")
def trainer_program(project: Project, request: pytest.FixtureRequest) -> Path:
    """The native trainer, built from the project's sources into a private folder."""
    environ = request.config.stash[WORKER].environ
    return build_program(project.path, "ffi/trainer.c", builds(), ["-ldl", "-lm"], env=environ)


@pytest.fixture
def sources(project: Project, tmp_path: Path) -> Path:
    """A private copy of the project, as a user has just cloned it: nothing is built."""
    root = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    line = project.build_line
    units = {
        Path(source).parts[0] for source in (line.sources if line else ()) if len(Path(source).parts) > 1
    }
    for folder in sorted({*SOURCES, *units}):
        if (project.path / folder).is_dir():
            shutil.copytree(project.path / folder, root / folder, symlinks=True, ignore=ignored)
    root.mkdir(exist_ok=True)
    (root / "data").symlink_to(project.data)
    return root


@pytest.fixture
def checkout(sources: Path, pjrt_shim: Path, trainer_program: Path) -> Path:
    """The same with shim and trainer built."""
    shutil.copy2(pjrt_shim, sources / "ffi" / SHIM)
    shutil.copy2(trainer_program, sources / "trainer")
    return sources


@pytest.fixture
def iree_checkout(checkout: Path, iree_shim: Path) -> Path:
    """The checkout with both shims."""
    shutil.copy2(iree_shim, checkout / "ffi" / IREE_SHIM)
    return checkout


@pytest.fixture
def train(run: Runner, checkout: Path, pjrt_plugin: Path, evidence: Evidence) -> Callable[..., Trained]:
    """A function that trains a net in the checkout, on this worker's device, and reads what was printed."""

    def train_net(net: str, *options: str, env: dict[str, str | None] | None = None) -> Trained:
        variables: dict[str, str | None] = {"PJRT_PLUGIN": str(pjrt_plugin), **(env or {})}
        trained = Trained.read(run(["./trainer", net, "data", *options], cwd=checkout, env=variables))
        device = trained.header["device"]
        evidence.ran_on(trained.header["platform"], [] if device == "cpu" else [device])
        return trained

    return train_net


@pytest.fixture
def attempt(run: Runner, checkout: Path) -> Callable[[str | None], Completed]:
    """A function that has the trainer make one step with that `PJRT_PLUGIN` (None: unset), whatever becomes of it."""

    def train_one_step(plugin: str | None) -> Completed:
        argv = ["./trainer", "linear", "data", "--steps", "1"]
        return run(argv, cwd=checkout, env={"PJRT_PLUGIN": plugin}, check=False)

    return train_one_step


@pytest.fixture
def open_with(
    request: pytest.FixtureRequest, pjrt_shim: Path, evidence: Evidence
) -> Callable[..., LowererHandle]:
    """A function that opens XLA in a fresh device process, with settings in its environment."""
    worker = request.config.stash[WORKER]

    def make(**settings: str) -> LowererHandle:
        worker.devices.retire()
        return worker.devices.open(worker.config("xla", pjrt_shim, settings), evidence)

    return make


@pytest.fixture
def invoke_through(
    project: Project, pjrt_shim: Path, tmp_path: Path, evidence: Evidence, request: pytest.FixtureRequest
) -> Callable[[Path], list[Any]]:
    """A function that runs a forward graph through the shim and any plugin, in a process that sees no card."""
    environ = pin_environment(request.config.stash[WORKER].environ, ())
    graph = plainest_net(project).forward

    def invoke(plugin: Path) -> list[Any]:
        evidence.act()
        env = {**environ, "PJRT_PLUGIN": str(plugin)}
        config = LowererConfig(name="xla", platform="cpu", shim=str(pjrt_shim), plugin=str(plugin))
        with DeviceProcess(env=env, log_path=tmp_path / "device.log") as process:
            process.call("open", budget=evidence.left, config=to_json(config))
            opened = process.call("session_open", budget=evidence.left, path=str(graph.path))
            made: list[Any] = process.call(
                "invoke",
                budget=evidence.left,
                session=opened["session"],
                fn=graph.entry,
                arrays=graph.inputs(1),
            )
            return made

    return invoke


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """What a process of this worker must say of its device: the card's UUID, or `cpu`."""
    gpu = request.config.stash[WORKER].gpu
    return gpu.uuid if gpu is not None else "cpu"


@dataclass(frozen=True, slots=True)
class Training:
    """A trainer in the middle of its work."""

    pid: int
    output: Path

    @property
    def text(self) -> str:
        """All that it has printed and said so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def header(self) -> dict[str, Any]:
        """What it printed first."""
        header: dict[str, Any] = json.loads(next(line for line in self.text.splitlines() if line[:1] == "{"))
        return header


@pytest.fixture
def training(
    run: Runner, checkout: Path, pjrt_plugin: Path, tmp_path: Path, evidence: Evidence
) -> Callable[..., AbstractContextManager[Training]]:
    """A context manager in which a trainer is at work, on this worker's device, for as long as the block lasts.

    Of several at once each has a log of its own.
    """

    @contextmanager
    def at_work(env: dict[str, str | None] | None = None, log: str = "trainer") -> Iterator[Training]:
        variables: dict[str, str | None] = {"PJRT_PLUGIN": str(pjrt_plugin), **(env or {})}
        output = tmp_path / f"{log}.log"
        argv = ["./trainer", "linear", "data", "--steps", ENDLESS]
        with run.background(argv, output, cwd=checkout, env=variables) as trainer:
            running = Training(trainer.pid, output)
            while '"kind":"step"' not in running.text:
                assert not trainer.wait(0.05), f"the trainer ended early: {running.text}"
                assert evidence.left > MARGIN, f"no step within the budget: {running.text}"
            yield running

    return at_work


@pytest.fixture
def mapped_while_training(
    training: Callable[..., AbstractContextManager[Training]],
) -> Callable[..., list[str]]:
    """A function that looks at the shared objects of a trainer in the middle of its work."""

    def look(env: dict[str, str | None] | None = None) -> list[str]:
        with training(env) as running:
            return sorted(mapped.path for mapped in shared_objects(running.pid))

    return look


@pytest.fixture
def outer(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment that this worker was started with."""
    environ: Mapping[str, str] = request.config.stash[WORKER].environ
    return environ


@pytest.fixture
def document_text(project: Project) -> str:
    """The bring-up document's text."""
    if project.document is None:
        pytest.skip("the project has no bring-up document")
    return read_document(project.document)


@pytest.fixture
def documented_line(document_text: str, evidence: Evidence) -> Callable[[str], str]:
    """A function that finds the first shell line of the document with a beginning.

    A document that does without it is another project's: then the line is the one of the document that this suite was
    written for, and the evidence says so.
    """
    own = find_document(suite_root() / "fixtures" / "reference")
    assert own is not None

    def find(start: str) -> str:
        lines = [line for line in shell_lines(document_text) if line.startswith(start)]
        if not lines:
            evidence.note(line_of=str(own))
            lines = [line for line in shell_lines(read_document(own)) if line.startswith(start)]
        return lines[0]

    return find


@pytest.fixture
def documented(documented_line: Callable[[str], str]) -> Callable[[str], list[str]]:
    """The same in words, without its comment."""
    return lambda start: shlex.split(documented_line(start), comments=True)


@pytest.fixture
def stand_in(run: Runner, tmp_path: Path) -> Callable[..., Path]:
    """A function that builds a shim which only has (or lacks) symbols; `fixtures/broken/shims/stand_in.c` says which."""

    def build(name: str, *defines: str) -> Path:
        source = suite_root() / "fixtures" / "broken" / "shims" / "stand_in.c"
        made = tmp_path / name
        flags = [f"-D{define}" for define in defines]
        run(["gcc", "-fPIC", "-shared", *flags, source, "-o", made], device=False)
        return made

    return build
