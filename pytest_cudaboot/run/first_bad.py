"""When a net disagrees, look for its first bad operation, within a budget. It adds evidence and changes no outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cudaboot.errors import CudabootError, NoTimeLeftError, NumericError
from pytest_cudaboot.model import CellKey, Json
from pytest_cudaboot.rules.iree_target import choose_target
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle
from pytest_cudaboot.run.items import cell_id
from pytest_cudaboot.run.nets import Graph
from pytest_cudaboot.run.worker import WORKER, Worker

if TYPE_CHECKING:
    from pytest_cudaboot.lowerers.base import Array
    from pytest_cudaboot.rules.first_bad_facts import Search
    from pytest_cudaboot.rules.stablehlo_cut import Cut

BROKEN = "broken"  # folder beside the verdict, one inside for each broken cell
FOLDER = "first-bad"
BUDGET = 60.0
MARGIN = 10.0  # of the test's own budget, for the rest of it
SEARCHES = 2  # of one worker: where everything is off, more of them tell nothing new


class Looker:
    """Looks for the first bad operation of a graph on one lowerer.

    :param load: has a lowerer load a cut.
    :param cuts: private folder for the cuts' texts.
    """

    def __init__(
        self, load: Callable[[LowererHandle, Path], Any], cuts: Path, *, until: float = float("inf")
    ) -> None:
        self._load, self._cuts, self._until = load, cuts, until

    def look(
        self,
        handle: LowererHandle,
        graph: Path,
        inputs: Sequence[Array],
        peer: LowererHandle | None = None,
    ) -> Search:
        """Where that lowerer is off first.

        :param peer: another lowerer that is open as well, for operations that float64 is not computed of.
        :raises CudabootError: the search came to no end.
        """
        from pytest_cudaboot.rules.first_bad import find_first_bad
        from pytest_cudaboot.rules.stablehlo_text import read_function

        function = read_function(graph.read_text(encoding="utf-8"))
        self._cuts.mkdir(parents=True, exist_ok=True)

        def run(on: LowererHandle, cut: Cut, arrays: Sequence[Array]) -> list[Array]:
            if time.monotonic() > self._until:
                raise NoTimeLeftError(f"no more than {BUDGET:g} s are spent on it")
            path = self._cuts / f"{cut.entry}.mlir"
            path.write_text(cut.text, encoding="utf-8")
            session = self._load(on, path)
            made: list[Array] = session.invoke(arrays)
            session.close()
            return made

        return find_first_bad(
            function,
            inputs,
            partial(run, handle),
            lowerer=handle.name,
            platform=handle.platform,
            peer=(peer.name, partial(run, peer)) if peer is not None else None,
        )


class Inquiry:
    """One test's looks for first bad operations, and what they add to its evidence.

    :param load: has a lowerer load a cut.
    """

    def __init__(
        self,
        worker: Worker,
        evidence: Evidence,
        cell: CellKey | None,
        open_lowerer: Callable[[str], LowererHandle],
        load: Callable[[LowererHandle, Path], Any],
    ) -> None:
        self._worker, self._evidence, self._cell = worker, evidence, cell
        self._open, self._load = open_lowerer, load

    def search(self, graph: Graph, inputs: Sequence[Any], names: Sequence[str], cuts: Path) -> Json:
        """What was found of the first of these lowerers that is off, or of all that none is."""
        until = time.monotonic() + min(BUDGET, self._evidence.left - MARGIN)
        looker = Looker(self._load, cuts, until=until)
        words: list[str] = []
        for name in names:
            handle = self._open(name)
            found = looker.look(handle, graph.path, inputs)
            words.append(found.words if found.bad is not None else f"{name}: {found.words}")
            if found.bad is not None:
                told = {"graph": graph.entry, "found": "; ".join(words)}
                return {**told, **found.bad.to_json(), "folder": self._write(found, graph.entry, handle)}
        return {"graph": graph.entry, "found": "; ".join(words)}

    def note(self, search: Callable[[], Json]) -> None:
        """Add a search's answer to the test's evidence: what the search opened is not what the test is about."""
        evidence = self._evidence
        before, arrays = dict(evidence.notes), evidence.arrays
        found = _whatever_happens(search, self._worker, evidence)
        evidence.notes.clear()
        evidence.note(**before, first_bad=found)
        evidence.arrays = arrays

    def _write(self, found: Search, entry: str, handle: LowererHandle) -> str:
        """Write the reproducer; where it lies in the run's output."""
        out = Path(self._worker.plan.out)
        folder = broken_folder(out, self._cell, self._evidence.spec) / FOLDER / entry
        _write(found, folder, handle, self._worker)
        return str(folder.relative_to(out))


@pytest.fixture(scope="session")
def _searches() -> list[str]:
    """The entries that this worker has looked at."""
    return []


@pytest.fixture
def _load_cut(
    request: pytest.FixtureRequest, evidence: Evidence, tmp_path: Path
) -> Callable[[LowererHandle, Path], Any]:
    """A function that has a lowerer load a graph, whose module is kept for this test alone."""

    def load(handle: LowererHandle, path: Path) -> Any:
        if handle.name != "iree":
            return handle.open_session(path)
        modules = request.getfixturevalue("modules").elsewhere(tmp_path / "modules")
        return handle.open_session(modules.of(path, budget=evidence.left).path, source=path)

    return load


@pytest.fixture
def look_closer(
    request: pytest.FixtureRequest,
    open_lowerer: Callable[[str], LowererHandle],
    evidence: Evidence,
    tmp_path: Path,
    _cudaboot_cell: CellKey | None,
    _load_cut: Callable[[LowererHandle, Path], Any],
    _searches: list[str],
) -> Callable[[Graph, Sequence[Any], Sequence[str]], AbstractContextManager[None]]:
    """A context manager for a comparison: where it fails, the first bad operation is looked for, and noted.

    It takes the graph, its inputs, and the names of the lowerers that may be off.
    """
    inquiry = Inquiry(request.config.stash[WORKER], evidence, _cudaboot_cell, open_lowerer, _load_cut)

    @contextmanager
    def looking(graph: Graph, inputs: Sequence[Any], names: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except NumericError:
            if len(_searches) < SEARCHES:
                _searches.append(graph.entry)
                inquiry.note(lambda: inquiry.search(graph, inputs, names, tmp_path / "cuts"))
            raise

    return looking


def broken_folder(out: Path, cell: CellKey | None, spec: str | None) -> Path:
    """Where the evidence of a broken cell lies."""
    parts = [part for part in (spec, cell_id(cell) if cell else None) if part]
    return out / BROKEN / ("-".join(parts) or "no-spec")


def _whatever_happens(search: Callable[[], Json], worker: Worker, evidence: Evidence) -> Json:
    """The search's answer, or why it has none: the test has failed already, and for a better reason."""
    try:
        return search()
    except (CudabootError, MemoryError, OSError) as error:
        worker.devices.settle(
            evidence
        )  # what a cut has broken is ended here, and is not laid at the test's door
        return {"found": f"nothing: {str(error).partition(chr(10))[0] or type(error).__name__}"}


def _write(found: Search, folder: Path, handle: LowererHandle, worker: Worker) -> None:
    from pytest_cudaboot.run.reproducer import versions_of, write_reproducer

    assert found.bad is not None  # noqa: S101, the caller has looked
    versions = versions_of(handle.facts)
    plugin, compiler = worker.plan.plugin_facts, worker.plan.iree.compiler_facts
    if handle.name == "xla" and plugin.get("distribution"):
        versions["package"] = f"{plugin['distribution']} {plugin.get('version')}"
    if handle.name == "iree" and compiler.get("version"):
        versions["iree-base-compiler"] = str(compiler["version"])
    if worker.gpu is not None:
        versions["card"] = worker.gpu.name
    flags = choose_target(handle.platform, worker.environ).flags
    write_reproducer(found.bad, folder, versions=versions, platform=handle.platform, flags=flags)
