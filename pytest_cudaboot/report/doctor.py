"""`cudaboot doctor`: look at the machine and print what is there, what is not, and what to do. It runs no program."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import platformdirs

from pytest_cudaboot.errors import BoxError, DataError, LeaseError, ToolMissingError
from pytest_cudaboot.model import Json, to_json
from pytest_cudaboot.probes import elf, health, lease, loader, nvml, pci, toolchain
from pytest_cudaboot.rules.checkup import Line, State, checkup, ready
from pytest_cudaboot.rules.checkup_facts import Facts, LibraryFact, Plugin, RoomFact, Tool
from pytest_cudaboot.rules.cuda_libraries import cuda_libraries

SCHEMA = "cudaboot-doctor/1"
STYLES = {State.FOUND: "green", State.MISSING: "yellow", State.WRONG: "red", State.HELD: "yellow"}
NOT_NEEDED = "dim"


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where to look.

    :param project: the checkout whose own environment comes first.
    :param site_packages: folders of the running interpreter's packages.
    :param cache: the loader's record of libraries.
    """

    environ: Mapping[str, str]
    project: Path
    site_packages: Sequence[Path] = ()
    cache: Path = loader.CACHE

    @classmethod
    def here(cls, environ: Mapping[str, str], project: Path) -> Places:
        """Where the running interpreter and its user would look."""
        return cls(environ=environ, project=project, site_packages=toolchain.package_folders())


def doctor(places: Places, *, as_json: bool, out: TextIO) -> int:
    """Look and print.

    :returns: 0 if what `--gpus auto` needs is there, else 1.
    """
    began = time.monotonic()
    lines = checkup(examine(places))
    seconds = time.monotonic() - began
    if as_json:
        json.dump(as_data(lines, seconds), out, indent=1, ensure_ascii=False)
        out.write("\n")
    else:
        show(lines, out)
    return 0 if ready(lines) else 1


def as_data(lines: tuple[Line, ...], seconds: float) -> Json:
    """The lines for another program."""
    return {"schema": SCHEMA, "ready": ready(lines), "seconds": round(seconds, 3), "lines": to_json(lines)}


def show(lines: tuple[Line, ...], out: TextIO) -> None:
    """A table, and under it the commands, whole, so that they can be pasted."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, highlight=False)
    table = Table("", "what", "detail", box=None, pad_edge=False)
    for line in lines:
        style = NOT_NEEDED if line.state is not State.FOUND and not line.needed else STYLES[line.state]
        table.add_row(Text(line.state, style=style), Text(line.what), Text(_short(line), overflow="fold"))
    console.print(table)
    for title, needed in (("to do first, in this order:", True), ("not needed for it:", False)):
        chosen = [line for line in lines if line.needed is needed and line.state is not State.FOUND]
        if commands := _merged([line.fix for line in chosen if line.fix]):
            console.print(f"\n{title}", *commands, sep="\n  ", markup=False, soft_wrap=True)
    console.print(f"\n{'ready' if ready(lines) else 'not ready'} for `pytest --gpus auto`")


def _short(line: Line) -> str:
    """Every place where a thing was looked for is of interest only where the thing is needed."""
    if line.needed or line.state is State.FOUND:
        return line.detail
    return line.detail.partition("\n")[0].removesuffix("; tried, in order:")


def _merged(commands: Sequence[str]) -> list[str]:
    """Commands in their order, each once, and what one `pip install` can do in one."""
    done: dict[str, list[str]] = {}
    for command in commands:
        head, pip, packages = command.partition(" -m pip install ")
        one = bool(pip) and "&&" not in command
        words = done.setdefault(head + pip if one else command, [])
        words += [packages] if one and packages not in words else []
    return [start + " ".join(words) for start, words in done.items()]


def examine(places: Places) -> Facts:
    """Everything that is looked at, each once."""
    root, view, failure = _nvml()
    bus = pci.cards(root)
    held, lease_problem = _leases(places.environ, [gpu.uuid for gpu in view.gpus])
    return Facts(
        driver=view.driver,
        cuda=view.cuda,
        absence=view.absence,
        failure=failure,
        gpus=view.gpus,
        mig=view.mig,
        mask=places.environ.get("CUDA_VISIBLE_DEVICES"),
        order=places.environ.get("CUDA_DEVICE_ORDER"),
        bus=tuple(card.address for card in bus),
        unnamed=_unnamed(bus, view),
        container=pci.in_container(root),
        plugin=_plugin(places, view.cuda),
        cpu_plugin=_tool(lambda: toolchain.find_cpu_plugin(places.environ, places.site_packages)),
        gcc=_program(health.program("gcc", places.environ), "no C compiler `gcc` on PATH"),
        iree_compile=_iree_compile(places),
        lake=_lake(places),
        rooms=_rooms(places.project),
        held=held,
        lease_problem=lease_problem,
    )


def _unnamed(bus: Sequence[pci.PciCard], view: nvml.NvmlView) -> tuple[str, ...]:
    """Cards of the bus that NVML neither names nor keeps for somebody else."""
    named = {pci.normalized(gpu.pci) for gpu in view.gpus}
    missing = tuple(card.address for card in bus if card.address not in named)
    return missing if len(missing) > view.denied else ()


def _nvml() -> tuple[Path, nvml.NvmlView, str | None]:
    """The root of the box's files, what NVML answers, and how it fails."""
    try:
        return nvml.simulated_root() or Path("/"), nvml.look(), None
    except BoxError as error:
        return Path("/"), nvml.NvmlView(), str(error)


def _plugin(places: Places, cuda: int | None) -> Plugin:
    tool = _tool(
        lambda: toolchain.find_cuda_plugin(places.environ, places.project, places.site_packages, cuda)
    )
    if tool.path is None:
        return Plugin(tool=tool, python=_python(places.project / ".venv"))
    path = Path(tool.path)
    folder = health.package_folder(path)
    try:
        major = _built_for(path)
        libraries = _libraries(loader.Loader(path, places.environ, places.cache), major)
    except DataError as error:
        return Plugin(tool=Tool(path=None, about=str(error)))
    return Plugin(
        tool=tool,
        cuda=major,
        libraries=libraries,
        packages=health.packages(folder) if folder else None,
        python=_python(folder.parents[2]) if folder else "python",
    )


def _iree_compile(places: Places) -> Tool:
    return _tool(lambda: toolchain.find_iree_compile(places.environ, places.project, places.site_packages))


def _built_for(path: Path) -> int | None:
    """The CUDA major of a plugin: its folder says so, else the folders in which it looks for libraries."""
    words = [path.parent.name, *elf.rpath(path)]
    majors = [match[1] for word in words if (match := re.search(r"(?:xla_cuda|nvidia/cu)(\d+)", word))]
    return int(majors[0]) if majors else None


def _libraries(search: loader.Loader, major: int | None) -> tuple[LibraryFact, ...]:
    facts = []
    for library in cuda_libraries(major or 0):
        found = search.find(library.soname)
        others = () if found else search.others(library.stem, library.soname)
        facts.append(
            LibraryFact(
                library=library,
                path=str(found.path) if found else None,
                via=found.via if found else "",
                others=tuple(f"{other.path} ({other.via})" for other in others),
            )
        )
    return tuple(facts)


def _tool(find: Callable[[], toolchain.Found]) -> Tool:
    try:
        found = find()
    except ToolMissingError as error:
        return Tool(path=None, about=str(error))
    return Tool(path=str(found.path), about=found.found_via, version=found.version)


def _program(path: Path | None, absence: str) -> Tool:
    return Tool(path=str(path)) if path else Tool(path=None, about=absence)


def _lake(places: Places) -> Tool:
    found = health.lake(places.environ)
    if found is None:
        return Tool(path=None, about="not on PATH, and elan is not installed")
    return Tool(path=str(found), about=health.lean_pin(places.project, places.environ) or "")


def _python(prefix: Path) -> str:
    """The interpreter of an environment, as it is called in a shell; `python` where there is none of its own."""
    own = prefix / "bin" / "python"
    return str(own) if own.exists() else "python"


def _rooms(project: Path) -> tuple[RoomFact, ...]:
    rooms = (
        health.room("builds", platformdirs.user_cache_path("cudaboot")),
        health.room("project", project),
    )
    return tuple(
        RoomFact(purpose=room.purpose, path=str(room.path), free=room.free, writable=room.writable)
        for room in rooms
    )


def _leases(
    environ: Mapping[str, str], uuids: Sequence[str]
) -> tuple[tuple[tuple[str, str], ...], str | None]:
    """The cards in use, with who has each, and why that can not be told."""
    if not uuids:
        return (), None
    try:
        found = lease.obstacles(uuids, folder=lease.lease_folder(environ))
    except LeaseError as error:
        return (), str(error)
    return tuple((obstacle.uuid, obstacle.why) for obstacle in found), None
