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

from pytest_cudaboot.run.instructions import LEAVE, Instruction, carry_out, token_of
from pytest_cudaboot.run.lanes import HOST, lane_of, name_of
from pytest_cudaboot.run.places import Places
from pytest_cudaboot.run.seams import Board, Device
from pytest_cudaboot.run.sending import Living, Sender


class Lanes(LoadScheduling):  # type: ignore[misc]
    """xdist's side of a run on lanes: what it asks and tells goes to a sender, and the sender's word to its nodes.

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
        self._sender: Sender | None = None
        self._session = config.pluginmanager.getplugin("dsession")
        self._clone, self._session._clone_node = self._session._clone_node, self._replace  # noqa: SLF001 - no hook
        self._places = Places(lambda: self._session.nodemanager.specs)

    # -- what xdist asks and tells -----------------------------------------------------------------------------

    @property
    def tests_finished(self) -> bool:
        """The stock property calls a run finished while an item is still under way."""
        if self._sender is None:
            return not self._places.left
        return not (any(self.node2pending.values()) or self._sender.busy)

    def schedule(self) -> None:
        """Begin, or go on after a replacement has collected."""
        if self._sender is None:
            if not self._check_nodes_have_same_collection():
                raise pytest.UsageError("the workers collected different tests; the report above names them")
            node, self.collection = next(iter(self.node2collection.items()))
            board = self._start(self.collection, node.gateway.id)
            self.pending[:] = range(len(self.collection))
            self._sender = Sender(board, self._places, self, self.pending)
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
        if self._sender is not None:
            self._sender.ended(name_of(node), item_index)

    def remove_node(self, node: Any) -> str | None:
        """A node is gone; the item it had has crashed it, which xdist reports next. Its replacement gets its lane."""
        sent = self.node2pending.pop(node)
        crashed = self._sender.gone(name_of(node), sent) if self._sender is not None else None
        return self.collection[crashed] if crashed is not None else None

    def begun(self, nodeid: str) -> None:
        """A worker has said that it is at work on an item."""
        if self._sender is not None:
            self._sender.begun(self.collection.index(nodeid))

    def crash_reported(self) -> None:
        """What a crash means is known only now: xdist makes its report after it has removed the node."""
        if self._sender is not None:
            self._sender.crash_reported()

    def cards(self, nodeid: str) -> tuple[str, ...]:
        """The lanes that an item has that is under way: the names of cards, of which the first is the lead's."""
        return self._sender.lanes(self.collection.index(nodeid)) if self._sender is not None else ()

    def _dispatch(self) -> None:
        if self._sender is not None:
            self._sender.dispatch()

    # -- what the sender asks ----------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether xdist sends nothing more."""
        return bool(self._session.shouldstop)

    def living(self) -> dict[str, Living]:
        """The workers that have collected and are not told to end, by the names of their lanes."""
        return {
            name_of(node): Living(worker=node.gateway.id, lane=lane_of(node.gateway.spec), idle=not sent)
            for node, sent in self.node2pending.items()
            if node in self.node2collection and not node.shutting_down
        }

    def tell(self, name: str, instruction: Instruction) -> None:
        """If its worker has just died, what it was told is asked for again when xdist tells of its death."""
        node = next(node for node in self.node2pending if name_of(node) == name)
        self.node2pending[node].append(token_of(instruction))
        with contextlib.suppress(OSError):
            node.send_runtest_some([instruction])
        if instruction == LEAVE:
            self._leaving(node.gateway.id, True)  # noqa: FBT003 - it says what its name says

    # -- places ------------------------------------------------------------------------------------------------

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
        if self._sender is None and self.node2collection and self.collection_is_completed:
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
