"""Small suites by a seed, to commit faults in: a catalogue, its tests, and what each of them does. Pure text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_cudaboot.faults.schedule import HANGS, PHASES, Schedule, Target
from pytest_cudaboot.model import CellKey

HANG_BUDGET = 3  # seconds; a healthy call takes milliseconds
BUDGET = 60
MOST_CALLS = 3
LOWERERS = ("xla", "iree")
CONFTEST = '''"""A device for each option; the tiny plugin behind it does no work, which is enough to be late or dead."""

import pytest
from pytest_cudaboot.run import watchdog
from pytest_cudaboot.run.worker import WORKER

watchdog.GRACE = 12.0  # what hangs here was made to; stacks take their time on a busy machine


class Device:
    def __init__(self, handle):
        self.handle = handle

    def work(self, calls):
        for _ in range(calls):
            self.handle.call("driver")


@pytest.fixture
def device(request, _cudaboot_cell, pjrt_shim, evidence):
    worker = request.config.stash[WORKER]
    extra = {"FAULTS_OPTION": request.module.OPTIONS[_cudaboot_cell.spec]}
    handle = worker.devices.open(worker.config("xla", pjrt_shim, extra), evidence)
    device = Device(handle)
    device.work(1)
    yield device
    if handle.alive:
        device.work(1)
'''


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One spec of a generated suite, with one test.

    :param on: `host`, `any`, `each`, or `gang`: any card, and `cards` of them at once.
    :param calls: how often its test's body calls the device; its set-up and its tear-down do so once each.
    :param option: specs of another option need another device process.
    """

    id: str
    on: str
    lowerers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    cards: int = 1
    calls: int = 1
    option: str = "a"

    @property
    def slots(self) -> tuple[str | None, ...]:
        return self.lowerers or (None,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """Some specs, each of which needs earlier ones only, and the cards that they run on.

    :param cards: UUIDs.
    """

    works: tuple[Work, ...]
    cards: tuple[str, ...]

    def cells(self, work: Work) -> tuple[CellKey, ...]:
        cards: Sequence[str | None] = self.cards if work.on == "each" else (None,)
        return tuple(CellKey(work.id, slot, card) for slot in work.slots for card in cards)

    def targets(self) -> Iterator[Target]:
        """Where faults can be aimed."""
        for work in self.works:
            counts = dict(zip(PHASES, (1, work.calls, 1), strict=True)) if work.on != "host" else {}
            yield from (Target(cell=cell, calls=counts) for cell in self.cells(work))

    def catalog(self, schedule: Schedule) -> str:
        """The catalogue; what will hang is not given long for it."""
        hanging = {fault.cell.spec for fault in schedule.faults if fault.act in HANGS}
        return "\n".join(_table(work, HANG_BUDGET if work.id in hanging else BUDGET) for work in self.works)

    def tests(self) -> str:
        options = {work.id: work.option for work in self.works}
        head = f'"""Generated."""\n\nimport pytest\n\nOPTIONS = {options!r}'
        return "\n\n".join([head, *map(_test, self.works)]) + "\n"


def make_suite(seed: int, cards: Sequence[str]) -> Suite:
    """The suite of a seed."""
    chance = random.Random(seed)  # noqa: S311 - that it can be foretold is the point
    works = [Work(id="s.first", on="each", lowerers=("xla",))]
    for number in range(chance.randint(3, 6)):
        works.append(_work(chance, f"s.n{number}", [work.id for work in works], len(cards)))
    return Suite(works=tuple(works), cards=tuple(cards))


def _work(chance: random.Random, ident: str, earlier: Sequence[str], cards: int) -> Work:
    on = chance.choice(("host", "any", "each", "each", "gang") if cards > 1 else ("host", "any", "each"))
    # Only what runs on the host is in scope for a lowerer that is not there.
    named = chance.choice(((), LOWERERS if on == "host" else LOWERERS[:1]))
    return Work(
        id=ident,
        on=on,
        lowerers=named,
        needs=tuple(sorted(chance.sample(earlier, min(len(earlier), chance.choice((0, 0, 0, 1, 1, 2)))))),
        cards=chance.randint(2, cards) if on == "gang" else 1,
        calls=chance.randint(1, MOST_CALLS),
        option=chance.choice("aaaaaaab"),
    )


def _table(work: Work, budget: int) -> str:
    lines = [f"[{work.id}]", 'kind = "step"', 'title = "T"', 'heading = "H"', f"budget = {budget}"]
    lines.append(f'on = "{"any" if work.on == "gang" else work.on}"')
    lines += [f"{key} = {json.dumps(value)}" for key, value in _lists(work) if value]
    return "\n".join(lines) + "\n"


def _lists(work: Work) -> Iterator[tuple[str, list[str]]]:
    yield "lowerers", list(work.lowerers)
    yield "needs", list(work.needs)
    yield "when", [f"gpus:{work.cards}"] if work.on == "gang" else []


def _test(work: Work) -> str:
    name = work.id.replace(".", "_")
    if work.on == "host":
        return f'@pytest.mark.spec("{work.id}")\ndef test_{name}(measure):\n    measure(figure=1)'
    return f'@pytest.mark.spec("{work.id}")\ndef test_{name}(device):\n    device.work({work.calls})'
