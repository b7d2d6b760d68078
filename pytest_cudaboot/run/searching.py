"""`cudaboot first-bad`: look for the first operation of a graph that a lowerer computes wrongly, on the CPU.

It asks no oracle: each operation is held against float64, or where that is not computed, against the other lowerer.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import platformdirs

from pytest_cudaboot.errors import CudabootError, UsageError
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.toolchain import find_cpu_plugin
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import DEVICES
from pytest_cudaboot.rules.signature import check_artifact
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.filling import cpu_modules
from pytest_cudaboot.run.first_bad import FOLDER, Looker
from pytest_cudaboot.run.handles import LowererHandle, SessionHandle
from pytest_cudaboot.run.reproducer import versions_of, write_reproducer

if TYPE_CHECKING:
    from pytest_cudaboot.lowerers.base import Array, LowererConfig
    from pytest_cudaboot.lowerers.modules import Modules

NAMES = ("xla", "iree")
PATIENCE = 3600.0  # seconds, for all of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Here:
    """Where lowerers come from: the environment, the checkout whose shim is built, and folders of packages."""

    environ: Mapping[str, str]
    project: Project
    site_packages: Sequence[Path]


def search(graph: Path, lowerers: Sequence[str], here: Here, *, seed: int, folder: Path, out: TextIO) -> int:
    """Search one graph on each lowerer, with seeded inputs.

    :param folder: where a reproducer of what is found goes, one folder a lowerer.
    :returns: 1 if a lowerer is off, else 0.
    :raises UsageError: a lowerer is none, or is not here, or the graph is no artifact.
    """
    if unknown := [name for name in lowerers if name not in NAMES]:
        raise UsageError(f"no lowerer {unknown[0]!r}; there are: {', '.join(NAMES)}")
    try:
        return _search(graph, lowerers, here, _inputs(graph, seed), folder / FOLDER / graph.stem, out)
    except UsageError:
        raise
    except CudabootError as error:
        raise UsageError(str(error)) from error


def _search(
    graph: Path, lowerers: Sequence[str], here: Here, arrays: Sequence[Array], folder: Path, out: TextIO
) -> int:
    status = 0
    with ExitStack() as stack:
        cuts = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        looker = Looker(_loader(here, cuts), cuts)
        handles = [_open(stack, name, here, cuts) for name in lowerers]
        for handle in handles:
            peer = next((other for other in handles if other is not handle), None)
            told = looker.look(handle, graph, arrays, peer)
            out.write(f"{handle.name}: {told.words}\n")
            if told.bad is not None:
                status, versions = 1, versions_of(handle.facts)
                place = write_reproducer(
                    told.bad, folder / handle.name, versions=versions, platform=handle.platform
                )
                out.write(f"{handle.name}: to see it again: {place}\n")
    return status


def _inputs(graph: Path, seed: int) -> list[Array]:
    import numpy as np

    random = np.random.default_rng(seed)
    shapes = [kind.shape for kind in check_artifact(graph).inputs]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def _open(stack: ExitStack, name: str, here: Here, logs: Path) -> LowererHandle:
    """A lowerer in a device process of its own, which ends with the search."""
    from pytest_cudaboot.device.client import DeviceProcess

    config = _config(name, here)
    evidence = Evidence(deadline=time.monotonic() + PATIENCE)
    env = {**here.environ, **config.environment, "CUDA_VISIBLE_DEVICES": ""}
    process = stack.enter_context(DeviceProcess(env=env, log_path=logs / f"{name}.log"))
    facts = process.call("open", budget=evidence.left, config=to_json(config))
    return LowererHandle(process, config, facts, evidence)


def _config(name: str, here: Here) -> LowererConfig:
    from pytest_cudaboot.lowerers.base import LowererConfig
    from pytest_cudaboot.lowerers.build import build_shim

    if name == "iree":
        return LowererConfig(name=name, platform="cpu", environment={"IREE_DEVICE": DEVICES["cpu"]})
    plugin = str(find_cpu_plugin(here.environ, here.site_packages).path)
    shim = build_shim(
        here.project.path, platformdirs.user_cache_path("cudaboot") / "builds", env=here.environ
    )
    return LowererConfig(
        name=name, platform="cpu", shim=str(shim), plugin=plugin, environment={"PJRT_PLUGIN": plugin}
    )


def _loader(here: Here, folder: Path) -> Callable[[LowererHandle, Path], SessionHandle]:
    """A function that has a lowerer load a cut; IREE's compiler is looked for when the first one needs it."""
    kept: list[Modules] = []

    def load(handle: LowererHandle, path: Path) -> SessionHandle:
        if handle.name != "iree":
            return handle.open_session(path)
        if not kept:
            kept.append(cpu_modules(folder / "modules", here.project, here.environ, here.site_packages))
        return handle.open_session(kept[0].of(path).path, source=path)

    return load
