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
from typing import Any, Protocol

import pytest
from xdist.scheduler import LoadScheduling

from pytest_cudaboot.run.lanes import CARD, HOST, LANE_VARIABLE


class Board(Protocol):
    """What the scheduler asks about items; indices are positions in the collection."""

    def lane(self, index: int) -> str:
        """`host`, `card` (any card), or the UUID of the card that the item is bound to."""

    def waits(self, index: int) -> bool:
        """Whether a prerequisite of the item is still open."""

    def blocked(self, index: int) -> bool:
        """Whether a prerequisite is broken. The first answer of yes is recorded, and closes the item."""

    def impossible(self, index: int, reason: str) -> None:
        """Record that the item can not be had in this run."""

    def sent(self, index: int, worker: str) -> None:
        """The item is on its way to a worker."""

    def closed(self, index: int) -> None:
        """The item has ended, one way or another."""


class Lanes(LoadScheduling):  # type: ignore[misc]
    """At most one item a node; `pending` is the queue, in collection order.

    :param start: called once with the collection's node ids and a worker's id, when all workers have collected.
    """

    def __init__(self, config: pytest.Config, log: Any, start: Callable[[Sequence[str], str], Board]) -> None:
        super().__init__(config, log)
        self._start = start
        self._board: Board | None = None
        self._lost: list[str] = []  # lanes of replacements that collected something else
        self._aside: dict[str, str] = {}  # lanes that get nothing more, and why
        self._crashed: list[int] = []  # items whose worker died, and whose report is not made yet

    @property
    def tests_finished(self) -> bool:
        """The stock property calls a run finished while an item is still under way."""
        return self._board is not None and not self.pending and not any(self.node2pending.values())

    def schedule(self) -> None:
        """Begin, or go on after a replacement has collected."""
        if self._board is None:
            if not self._check_nodes_have_same_collection():
                raise pytest.UsageError("the workers collected different tests; the report above names them")
            node, self.collection = next(iter(self.node2collection.items()))
            self._board = self._start(self.collection, node.gateway.id)
            self.pending[:] = range(len(self.collection))
        self._dispatch()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A replacement that collects something else would be sent stale indices: it gets nothing."""
        super().add_node_collection(node, collection)
        if node not in self.node2collection:
            self._lost.append(lane_of(node.gateway.spec))
            node.shutdown()
            self._dispatch()

    def check_schedule(self, node: Any, duration: float = 0) -> None:
        """Called by the base class whenever something changed."""
        self._dispatch()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """The item's reports have arrived before this."""
        self.node2pending[node].remove(item_index)
        if self._board is not None:
            self._board.closed(item_index)
        self._dispatch()

    def remove_node(self, node: Any) -> str | None:
        """A node is gone; the item it had has crashed it. Its replacement inherits its lane."""
        sent = self.node2pending.pop(node)
        self._crashed += sent
        self._dispatch()
        return self.collection[sent[0]] if sent and self.collection is not None else None

    def crash_reported(self) -> None:
        """What a crash means is known only now: xdist makes its report after it has removed the node."""
        while self._crashed and self._board is not None:
            self._board.closed(self._crashed.pop())
        self._dispatch()

    def _dispatch(self) -> None:
        board = self._board
        if board is None:
            return
        for index in list(self.pending):
            if board.blocked(index):
                self.pending.remove(index)
            elif not self._can_ever_run(board.lane(index)):
                self.pending.remove(index)
                why = "".join(f"; {words}" for words in self._aside.values())
                board.impossible(index, f"no worker for {board.lane(index)!r}{why}")
            elif not board.waits(index) and (node := self._idle(board.lane(index))) is not None:
                self.pending.remove(index)
                self.node2pending[node].append(index)
                board.sent(index, node.gateway.id)
                node.send_runtest_some([index])

    def _idle(self, lane: str) -> Any | None:
        free = (
            node
            for node, sent in self.node2pending.items()
            if not sent
            and node in self.node2collection
            and not node.shutting_down
            and lane_of(node.gateway.spec) not in self._aside
        )
        return next((node for node in free if _serves(lane_of(node.gateway.spec), lane)), None)

    def _can_ever_run(self, lane: str) -> bool:
        """By the specs, not by the nodes alive: the replacement of a crashed worker is on its way."""
        manager = self.config.pluginmanager.getplugin("dsession").nodemanager
        lanes = [lane_of(spec) for spec in manager.specs]
        for lost in self._lost:
            lanes.remove(lost)
        return any(_serves(offered, lane) for offered in lanes if offered not in self._aside)

    def set_aside(self, lane: str, why: str) -> None:
        """Send nothing more there: what is bound to that card is not run, and the rest goes to others."""
        if lane not in self._aside:
            self._aside[lane] = why
            self._dispatch()


def lane_of(spec: Any) -> str:
    """The lane that an xdist spec was given."""
    return str(spec.env[LANE_VARIABLE])


def _serves(lane: str, wanted: str) -> bool:
    return lane != HOST if wanted == CARD else lane == wanted


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


def run_without_lookahead(config: pytest.Config, session: pytest.Session) -> None:
    """Make this worker run an item when it gets it, instead of when it knows the next one.

    `nextitem` is the session: what is narrower than the session is torn down after each item.
    """
    interactor = next(p for p in config.pluginmanager.get_plugins() if type(p).__name__ == "WorkerInteractor")

    def run_one_test() -> None:
        interactor.item_index = interactor.nextitem_index
        item = session.items[interactor.item_index]
        started = time.perf_counter()
        config.hook.pytest_runtest_protocol(item=item, nextitem=session)
        took = time.perf_counter() - started
        interactor.sendevent("runtest_protocol_complete", item_index=interactor.item_index, duration=took)
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
