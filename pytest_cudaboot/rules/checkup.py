"""What a machine has and lacks for `--gpus auto`, in the order in which one thing needs another. Pure: facts to lines."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pytest_cudaboot.errors import BoxError, SelectionError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.rules.checkup_facts import Facts, LibraryFact, Plugin, Tool
from pytest_cudaboot.rules.cuda_libraries import overwritten
from pytest_cudaboot.rules.selection import select

GIB = 1 << 30
LEAST_ROOM = GIB  # for the shims, the logs and the verdict
AMPLE_ROOM = 50 * GIB  # for Lean's libraries, a build of IREE and the data sets
ELAN = "see https://lean-lang.org/install"
GCC = "apt install gcc libc6-dev   # dnf install gcc, on Fedora and its kin"


class State(StrEnum):
    """What was seen of one thing."""

    FOUND = "found"
    MISSING = "missing"
    WRONG = "wrong"
    HELD = "held"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One thing.

    :param needed: whether `--gpus auto` needs it on this machine.
    :param fix: the command that puts it right, if there is one.
    """

    what: str
    state: State
    detail: str
    needed: bool = True
    fix: str | None = None

    @property
    def stops(self) -> bool:
        """Whether a run would stop here."""
        return self.needed and self.state is not State.FOUND


def checkup(facts: Facts) -> tuple[Line, ...]:
    """The lines, in the order in which to put things right."""
    steps: tuple[Callable[[Facts], Iterator[Line]], ...] = (
        _driver,
        _cards,
        _bus,
        _cuda_plugin,
        _libraries,
        _cpu_plugin,
        _tools,
        _rooms,
        _leases,
    )
    return tuple(line for step in steps for line in step(facts))


def ready(lines: tuple[Line, ...]) -> bool:
    """Whether a run with `--gpus auto` could begin now, as far as this can be seen without running anything."""
    return not any(line.stops for line in lines)


def _driver(facts: Facts) -> Iterator[Line]:
    if facts.failure is not None:
        fix = "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; sudo modprobe nvidia   # or reboot"
        yield Line(what="driver", state=State.WRONG, detail=facts.failure, fix=fix)
    elif facts.driver is not None:
        yield Line(what="driver", state=State.FOUND, detail=f"{facts.driver}, CUDA {_dotted(facts.cuda)}")
    elif facts.bus:
        fix = (
            "sudo ubuntu-drivers install --gpgpu   # elsewhere: the distribution's nvidia driver; then reboot"
        )
        yield Line(what="driver", state=State.MISSING, detail=f"NVML: {facts.absence}", fix=fix)
    else:
        where = "this container was given none" if facts.container else "there is none on the PCI bus"
        given = "docker run --gpus all ...   # if the host has cards" if facts.container else None
        detail = f"not needed without a card, and {where} (NVML: {facts.absence})"
        yield Line(what="driver", state=State.MISSING, detail=detail, needed=False, fix=given)


def _cards(facts: Facts) -> Iterator[Line]:
    if not facts.on_cards:
        yield Line(what="cards", state=State.MISSING, detail="none; `auto` runs on the CPU", needed=False)
        return
    try:
        chosen = _visible(facts)
    except BoxError:
        yield Line(what="cards", state=State.MISSING, detail="NVML names none")
        return
    except SelectionError as error:
        yield Line(what="cards", state=State.WRONG, detail=str(error), fix="unset CUDA_VISIBLE_DEVICES")
        return
    shown = "\n".join(f"{gpu.index} = {gpu.uuid} {gpu.name} at {gpu.pci}" for gpu in chosen)
    yield Line(what="cards", state=State.FOUND, detail=shown + _aside(facts, len(chosen)))
    for gpu in chosen:
        if gpu.uuid in facts.mig:
            detail = f"{gpu.uuid} is in MIG mode; only whole cards can be gated"
            fix = f"sudo nvidia-smi -i {gpu.uuid} -mig 0"
            yield Line(what="cards", state=State.WRONG, detail=detail, fix=fix)


def _visible(facts: Facts) -> tuple[Gpu, ...]:
    """The cards that `auto` takes, or all that it may take."""
    mask = None if facts.unclear else facts.mask
    return select("auto", facts.gpus, mask=mask, hardware=bool(facts.bus))


def _aside(facts: Facts, chosen: int) -> str:
    """What the mask does to the cards."""
    if facts.unclear:
        why = "only CUDA knows, for it numbers cards of several kinds its own way"
        return f"\nwhich of them CUDA_VISIBLE_DEVICES={facts.mask!r} means {why}"
    hidden = len(facts.gpus) - chosen
    return f"\n{hidden} more behind CUDA_VISIBLE_DEVICES={facts.mask!r}" if hidden else ""


def _bus(facts: Facts) -> Iterator[Line]:
    if facts.unnamed and facts.driver is not None:
        detail = f"NVML does not name {', '.join(facts.unnamed)}, which the PCI bus has"
        fix = "sudo dmesg | grep -E 'NVRM|Xid|AER'   # says why; a reboot brings a lost card back"
        yield Line(what="bus", state=State.WRONG, detail=detail, fix=fix)
    elif facts.driver is not None:
        agreed = f"{len(facts.bus)} on the PCI bus, and NVML names each"
        yield Line(what="bus", state=State.FOUND, detail=agreed, needed=facts.on_cards)


def _cuda_plugin(facts: Facts) -> Iterator[Line]:
    plugin, what = facts.plugin, "cuda plugin"
    supported = None if facts.cuda is None else facts.cuda // 1000
    package = f"jax-cuda{12 if supported == 12 else 13}-pjrt"  # noqa: PLR2004 - a CUDA major
    install = f"{plugin.python} -m pip install {package}"
    if plugin.tool.path is None:
        yield _absent(what, plugin.tool, needed=facts.on_cards, fix=install)
    elif plugin.cuda is not None and supported is not None and plugin.cuda > supported:
        detail = (
            f"{_told(plugin.tool)} wants CUDA {plugin.cuda}, and the driver goes up to {_dotted(facts.cuda)}"
        )
        yield Line(what=what, state=State.WRONG, detail=detail, needed=facts.on_cards, fix=install)
    else:
        yield Line(what=what, state=State.FOUND, detail=_told(plugin.tool), needed=facts.on_cards)


def _libraries(facts: Facts) -> Iterator[Line]:
    plugin = facts.plugin
    if plugin.tool.path is not None and not plugin.libraries:
        asked = "nothing says for which CUDA it was built" if plugin.cuda is None else f"CUDA {plugin.cuda}"
        detail = f"not known which libraries the plugin looks for: {asked}"
        yield Line(what="cuda libraries", state=State.MISSING, detail=detail, needed=False)
    for fact in plugin.libraries:
        yield _library(fact, plugin, needed=facts.on_cards and fact.library.needed)
    for first, second in overwritten(plugin.packages or frozenset()):
        ours, theirs = (second, first) if second.endswith(f"cu{plugin.cuda}") else (first, second)
        fix = (
            f"{plugin.python} -m pip uninstall -y {theirs} && "
            f"{plugin.python} -m pip install --force-reinstall --no-deps {ours}"
        )
        detail = f"{first} and {second} lie in one folder and overwrite each other's files"
        yield Line(what=ours, state=State.WRONG, detail=detail, needed=facts.on_cards, fix=fix)


def _library(fact: LibraryFact, plugin: Plugin, *, needed: bool) -> Line:
    library = fact.library
    purpose = f", for {library.purpose}" if library.purpose else ""
    if fact.path is not None:
        detail = f"{fact.path} ({fact.via}){purpose}"
        return Line(what=library.soname, state=State.FOUND, detail=detail, needed=needed)
    others = f"; only {', '.join(fact.others)}: another CUDA's" if fact.others else ""
    detail = f"not beside the plugin, not on LD_LIBRARY_PATH, not in ld.so.cache{others}{purpose}"
    fix = f"{plugin.python} -m pip install {shlex.quote(library.package)}"
    if plugin.packages is None:
        fix = f"export LD_LIBRARY_PATH=...   # the folder of CUDA {plugin.cuda}'s libraries"
    return Line(what=library.soname, state=State.MISSING, detail=detail, needed=needed, fix=fix)


def _cpu_plugin(facts: Facts) -> Iterator[Line]:
    needed = not facts.on_cards
    if facts.cpu_plugin.path is None:
        yield _absent("cpu plugin", facts.cpu_plugin, needed=needed, fix="python -m pip install xla-cpu-pjrt")
    else:
        yield Line(what="cpu plugin", state=State.FOUND, detail=_told(facts.cpu_plugin), needed=needed)


def _tools(facts: Facts) -> Iterator[Line]:
    for what, tool, needed, fix in (
        ("gcc", facts.gcc, True, GCC),
        ("iree-compile", facts.iree_compile, False, "python -m pip install iree-base-compiler"),
        ("lake", facts.lake, False, ELAN),
    ):
        if tool.path is None:
            yield _absent(what, tool, needed=needed, fix=fix)
        else:
            yield Line(what=what, state=State.FOUND, detail=_told(tool), needed=needed)


def _rooms(facts: Facts) -> Iterator[Line]:
    for room in facts.rooms:
        what, detail = f"disk: {room.purpose}", f"{room.free / GIB:.1f} GiB free in {room.path}"
        if not room.writable:
            yield Line(what=what, state=State.WRONG, detail=f"{room.path} can not be written by this user")
        elif room.free < LEAST_ROOM:
            fix = f"du -xh --max-depth=2 {shlex.quote(room.path)} | sort -h | tail   # shows what is large"
            yield Line(what=what, state=State.WRONG, detail=f"only {detail}", fix=fix)
        else:
            scarce = room.free < AMPLE_ROOM
            aside = f"; Lean's libraries and a build of IREE want {AMPLE_ROOM // GIB}" if scarce else ""
            yield Line(what=what, state=State.FOUND, detail=detail + aside)


def _leases(facts: Facts) -> Iterator[Line]:
    if facts.lease_problem is not None:
        yield Line(what="leases", state=State.WRONG, detail=facts.lease_problem, needed=facts.on_cards)
    elif not facts.held and facts.gpus:
        yield Line(what="leases", state=State.FOUND, detail="no run has any of these cards")
    for uuid, why in facts.held:
        fix = "pytest --gpus auto --cudaboot-wait 600"
        yield Line(
            what="leases", state=State.HELD, detail=f"{uuid} {why}", needed=_wanted(uuid, facts), fix=fix
        )


def _wanted(uuid: str, facts: Facts) -> bool:
    with contextlib.suppress(BoxError, SelectionError):
        return uuid in {gpu.uuid for gpu in _visible(facts)}
    return False


def _absent(what: str, tool: Tool, *, needed: bool, fix: str) -> Line:
    return Line(what=what, state=State.MISSING, detail=tool.about, needed=needed, fix=fix)


def _told(tool: Tool) -> str:
    about = ", ".join(part for part in (tool.version, tool.about) if part)
    return f"{tool.path} ({about})" if about else str(tool.path)


def _dotted(cuda: int | None) -> str:
    return "of no known version" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
