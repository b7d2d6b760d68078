"""Lanes on xdist: the one file that touches xdist's private names (`tests/run/test_xdist_contract.py` holds them).

The stock worker starts an item only when it knows the next one, and the stock scheduler knows no lanes. Both
are replaced here: a worker runs what it was sent at once, and a node is sent one item, when it is idle.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScheduling

from pytest_cudaboot.rules.dispatch import Move
from pytest_cudaboot.rules.timetable import Job, Lane
from pytest_cudaboot.run.asking import Asking
from pytest_cudaboot.run.instructions import (
    AGAIN,
    LEAVE,
    Instruction,
    carry_out,
    to_run,
    to_run_again,
    token_of,
)
from pytest_cudaboot.run.lanes import HOST, lane_of, name_of
from pytest_cudaboot.run.places import Places, sift
from pytest_cudaboot.run.seams import Board, Device, Question
from pytest_cudaboot.run.traffic import Traffic


class Lanes(LoadScheduling):  # type: ignore[misc]
    """At most one item a node; `pending` is what has not been sent.

    :param start: called once with the collection's node ids and a worker's id, when all workers have collected.
    :param tell: hears why a place is given up.
    :param leaving: hears of each worker that is to leave its card, and when it has (true, then false).
    """

    def __init__(
        self,
        config: pytest.Config,
        log: Any,
        start: Callable[[Sequence[str], str], Board],
        tell: Callable[[str], None],
        leaving: Callable[[str, bool], None],
    ) -> None:
        super().__init__(config, log)
        self._start = start
        self._tell = tell
        self._leaving = leaving
        self._board: Board | None = None
        self._asking: Asking | None = None
        self._jobs: list[Job] = []
        self._traffic = Traffic([], [])
        self._session = config.pluginmanager.getplugin("dsession")
        self._clone, self._session._clone_node = self._session._clone_node, self._replace  # noqa: SLF001 - no hook
        self._places = Places(lambda: self._session.nodemanager.specs)
        self._crashed: list[int] = []  # items whose worker died, and whose report is not made yet
        self._begun: set[int] = set()  # items that a worker has said it is at work on

    # -- what xdist asks and tells -----------------------------------------------------------------------------

    @property
    def tests_finished(self) -> bool:
        """The stock property calls a run finished while an item is still under way."""
        if self._board is None:
            return not self._places.left
        busy = self.pending or self._traffic.under_way or any(self.node2pending.values())
        return not (busy or self._board.panel.open)

    def schedule(self) -> None:
        """Begin, or go on after a replacement has collected."""
        if self._board is None:
            if not self._check_nodes_have_same_collection():
                raise pytest.UsageError("the workers collected different tests; the report above names them")
            node, self.collection = next(iter(self.node2collection.items()))
            self._board = self._start(self.collection, node.gateway.id)
            self._asking = Asking(self._board.panel, lambda: self._places.cards, self._again)
            self._jobs = self._board.jobs()
            self.pending[:] = range(len(self.collection))
            self._traffic = Traffic(self._jobs, [Lane(name=n, serves=s) for n, s, _ in self._lanes()])
        self._dispatch()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A replacement that collects something else would be sent stale indices: it gets nothing."""
        super().add_node_collection(node, collection)
        if node not in self.node2collection:
            node.shutdown()
            self._give_up(node.gateway.spec, "its new worker collected other tests")

    def check_schedule(self, node: Any, duration: float = 0) -> None:
        """Called by the base class whenever something changed."""
        self._dispatch()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """The item's reports have arrived before this."""
        self.node2pending[node].remove(item_index)
        if item_index == LEAVE:
            self._leaving(node.gateway.id, False)  # noqa: FBT003 - it says what its name says
            self._left(name_of(node))
        elif item_index <= AGAIN and self._asking is not None:
            for lane, why in self._asking.answered(item_index).items():
                self.set_aside(lane, why)
        elif self._board is not None:
            self._board.closed(item_index)
            self._traffic.end(item_index)
        self._dispatch()

    def remove_node(self, node: Any) -> str | None:
        """A node is gone; the item it had has crashed it, which xdist reports next. Its replacement gets its lane."""
        sent = self.node2pending.pop(node)
        name = name_of(node)
        if (gang := self._traffic.gone(name)) is not None:
            self._requeue(gang)
        if self._asking is not None:
            self._asking.gone(name)
        if LEAVE in sent:  # what it had on the card dies with it; whoever comes next waits until that is so
            self._left(name)
        for index in sent:
            if index <= AGAIN and self._asking is not None:
                self._asking.lost(index)
            elif index in self._begun:
                self._crashed.append(index)
            elif index >= 0:  # its worker had died before: that is no fault of the item
                self._requeue(index)
        if not self._crashed:
            self._dispatch()
        return self.collection[self._crashed[-1]] if self._crashed and self.collection else None

    def begun(self, nodeid: str) -> None:
        """A worker has said that it is at work on an item."""
        if self.collection is not None:
            self._begun.add(self.collection.index(nodeid))

    def cards(self, nodeid: str) -> tuple[str, ...]:
        """The lanes that an item has that is under way: the names of cards, of which the first is the lead's."""
        return self._traffic.lanes(self.collection.index(nodeid))

    def crash_reported(self) -> None:
        """What a crash means is known only now: xdist makes its report after it has removed the node."""
        while self._crashed and self._board is not None:
            index = self._crashed.pop()
            self._board.closed(index)
            self._traffic.end(index)
        self._dispatch()

    # -- what is sent ------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        board = self._board
        if board is None or self._session.shouldstop or self._crashed:
            return
        sift(self.pending, self._jobs, board, self._places)
        for move in self._traffic.moves(self._lanes(), self.pending):
            if not board.waits(move.job):
                self._begin(move)
        if not (self.pending or self._traffic.under_way):
            self._ask()

    def _ask(self) -> None:
        """All tests have ended: some are run again, for a second opinion."""
        idle = [node for node, sent in self.node2pending.items() if not sent and self._ready(node)]
        ready = {name_of(node): node for node in idle}
        if self._asking is not None:
            self._asking.ask(
                {name: node.gateway.id for name, node in ready.items()},
                clear=lambda name: self._clear(ready[name]),
            )

    def _again(self, question: Question) -> bool:
        """Send a question, if its worker lives."""
        if (node := self._node(question.lane)) is not None:
            self._tell_node(node, to_run_again(question))
        return node is not None

    def _clear(self, partner: Any) -> None:
        """Have a worker leave its card to a gang."""
        self._tell_node(partner, LEAVE)
        self._leaving(partner.gateway.id, True)  # noqa: FBT003 - it says what its name says

    def _begin(self, move: Move) -> None:
        """Send an item; for a gang have the partners leave their cards first."""
        self.pending.remove(move.job)
        held = self._traffic.begin(move)
        for name in tuple(held.leaving):
            partner = self._node(name)
            if partner is None:  # its card is held all the same, and a replacement gets nothing
                held.leaving.discard(name)
            else:
                self._clear(partner)
        if not held.leaving:
            self._send(move.job)

    def _left(self, name: str) -> None:
        if (gang := self._traffic.left(name)) is not None:
            self._send(gang)
        if self._asking is not None:
            self._asking.left(name)

    def _send(self, index: int) -> None:
        lanes = self._traffic.under_way[index].lanes
        node = self._node(lanes[0])
        if node is None or self._board is None:  # it has died since, and xdist tells of it next
            self._requeue(index)
            return
        self._board.sent(index, node.gateway.id, lanes)
        self._tell_node(node, to_run(index, lanes))

    def _tell_node(self, node: Any, instruction: Instruction) -> None:
        """If it has just died, what it was told is asked for again when xdist tells of its death."""
        self.node2pending[node].append(token_of(instruction))
        with contextlib.suppress(OSError):
            node.send_runtest_some([instruction])

    def _requeue(self, index: int) -> None:
        """An item that nobody has begun goes to the next worker."""
        self._traffic.end(index)
        self.pending.append(index)

    # -- lanes and places --------------------------------------------------------------------------------------

    def _lanes(self) -> list[tuple[str, str, bool]]:
        """Name, what it serves, and whether a worker is ready for it."""
        ready = [node for node in self.node2pending if self._ready(node)]
        return self._places.lanes({name_of(node): lane_of(node.gateway.spec) for node in ready})

    def _ready(self, node: Any) -> bool:
        """Whether it has collected and lives, and does not still leave its card to a gang that is gone."""
        idle_or_known = LEAVE not in self.node2pending[node] or self._traffic.held(name_of(node))
        return node in self.node2collection and not node.shutting_down and idle_or_known

    def _node(self, name: str) -> Any | None:
        return next((node for node in self.node2pending if name_of(node) == name and self._ready(node)), None)

    def _replace(self, node: Any) -> Any:
        """In the place of xdist's own, which knows one limit for all workers together, and ends the run at it."""
        spec = node.gateway.spec
        if (why := self._places.dies(spec)) is None:
            return self._clone(node)
        self._give_up(spec, why)
        return None

    def set_aside(self, lane: str, why: str) -> None:
        """Send nothing more there: what is bound to that card is not run, and the rest goes to others."""
        self._places.set_aside(lane, why)
        self._dispatch()

    def _give_up(self, spec: Any, why: str) -> None:
        if not self._places.give_up(spec, why):
            return
        lane = lane_of(spec)
        self._tell(f"{'a worker of the host' if lane == HOST else lane} is given up: {why}")
        self.numnodes -= 1
        if self._board is None and self.node2collection and self.collection_is_completed:
            self.schedule()
        self._dispatch()


def count_failure(config: pytest.Config, report: pytest.TestReport) -> None:
    """Let a crash count for `-x` and `--maxfail`, which stock xdist forgets."""
    config.pluginmanager.getplugin("dsession")._handlefailures(report)  # noqa: SLF001 - it owns the count


def dismiss_workers(config: pytest.Config, *, now: bool) -> None:
    """Tell the workers that nothing more is coming; stock xdist lets those that it did not tell wait.

    :param now: interrupt them as well, so that each ends its test and its fixtures.
    """
    session = config.pluginmanager.getplugin("dsession")
    for node in session.sched.nodes if session.sched is not None else ():
        if not node.shutting_down:
            node.shutdown()
    for gateway in session.nodemanager.group if now and session.nodemanager is not None else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(gateway._rinfo().pid, signal.SIGINT)  # noqa: SLF001 - xdist has it cached, for the same reason


def run_without_lookahead(config: pytest.Config, session: pytest.Session, device: Device) -> None:
    """Make this worker run an item when it gets it, instead of when it knows the next one.

    `nextitem` is the session: what is narrower than the session is torn down after each item.
    """
    interactor = next(p for p in config.pluginmanager.get_plugins() if type(p).__name__ == "WorkerInteractor")

    def run_one_test() -> None:
        instruction = interactor.nextitem_index
        interactor.item_index = instruction if isinstance(instruction, int) else instruction[0]
        started = time.perf_counter()
        carry_out(instruction, session, device)
        took = time.perf_counter() - started
        interactor.sendevent("runtest_protocol_complete", item_index=token_of(instruction), duration=took)
        interactor.nextitem_index = interactor.torun.get()

    interactor.run_one_test = run_one_test


class XdistWorkers:
    """What a watchdog asks of xdist, also from another thread: a queue, and facts that stay."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pid(self, node: Any) -> int:
        """The worker's process; xdist has it cached."""
        return int(node.gateway._rinfo().pid)  # noqa: SLF001 - there is no public way to it

    def ending(self, node: Any) -> bool:
        """Whether it was told that nothing more is coming."""
        return bool(node.shutting_down)

    def behind(self) -> bool:
        """Whether something was reported that nobody has looked at yet."""
        return not self._config.pluginmanager.getplugin("dsession").queue.empty()

    def lose(self, node: Any, why: str) -> None:
        """Take a worker for dead, as xdist does when its channel closes, and not a second time when it does."""
        if not node._down:  # noqa: SLF001 - it is how xdist itself avoids to count one death twice
            node._down = True  # noqa: SLF001 - the same
            node.notify_inproc("errordown", node=node, error=why)
