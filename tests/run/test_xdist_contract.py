"""The private names of xdist that `run/scheduler.py` touches, in the version that is pinned."""

from __future__ import annotations

import inspect
import os
from importlib.metadata import requires, version

import execnet
import pytest
from _pytest import runner
from packaging.requirements import Requirement
from xdist import dsession, remote, workermanage
from xdist.scheduler import LoadScheduling

from pytest_cudaboot.run import scheduler
from pytest_cudaboot.run.instructions import LEAVE


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type] # all that is asked about can be called


def test_the_installed_version_is_the_pinned_one() -> None:
    wanted = [Requirement(line) for line in requires("pytest-cudaboot") or ()]
    (xdist,) = [requirement for requirement in wanted if requirement.name == "pytest-xdist"]

    assert str(xdist.specifier) == "<3.9,>=3.8"
    assert xdist.specifier.contains(version("pytest-xdist"))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("add_node", ["self", "node"]),
        ("add_node_collection", ["self", "node", "collection"]),
        ("mark_test_complete", ["self", "node", "item_index", "duration"]),
        ("check_schedule", ["self", "node", "duration"]),
        ("remove_node", ["self", "node"]),
        ("schedule", ["self"]),
        ("_check_nodes_have_same_collection", ["self"]),
    ],
)
def test_methods_of_the_base_scheduler(method: str, expected: list[str]) -> None:
    assert parameters(getattr(LoadScheduling, method)) == expected
    assert parameters(getattr(scheduler.Lanes, method)) == expected


def test_properties_that_the_session_reads() -> None:
    assert isinstance(LoadScheduling.tests_finished, property)
    assert isinstance(scheduler.Lanes.tests_finished, property)
    assert {"nodes", "collection_is_completed", "has_pending"} <= set(dir(LoadScheduling))


def test_a_fresh_scheduler_has_the_tables_that_ours_fills(pytester: pytest.Pytester) -> None:
    config = pytester.parseconfigure("--tx", "2*popen")
    stock = LoadScheduling(config)

    assert (stock.node2collection, stock.node2pending, stock.pending, stock.collection) == ({}, {}, [], None)
    assert stock.numnodes == 2


def test_the_session_that_owns_the_count_of_failures() -> None:
    assert parameters(dsession.DSession._handlefailures) == ["self", "rep"]
    source = inspect.getsource(dsession.DSession)
    for name in ("self.nodemanager", "self.sched", "pytest_handlecrashitem"):
        assert name in source
    # The order that `crash_reported` relies on: the node is removed, and then its report is made.
    order = inspect.getsource(dsession.DSession.worker_errordown)
    assert order.index("remove_node") < order.index("handle_crashitem")


def test_the_session_asks_one_method_to_replace_a_worker() -> None:
    """Ours is put in its place: a node that is not replaced is None to nobody."""
    assert parameters(dsession.DSession._clone_node) == ["self", "node"]
    assert parameters(scheduler.Lanes._replace) == ["self", "node"]
    down = inspect.getsource(dsession.DSession.worker_errordown)
    assert "            self._clone_node(node)\n        self._active_nodes.remove(node)" in down
    assert "self.shouldstop = False" in inspect.getsource(dsession.DSession.pytest_runtestloop)
    # A worker and its replacements share one spec object, which is what a place is known by.
    assert "spec = node.gateway.spec" in inspect.getsource(dsession.DSession._clone_node)
    assert "self.nodemanager.setup_node(spec" in inspect.getsource(dsession.DSession._clone_node)


def test_an_instruction_may_be_anything_that_execnet_carries() -> None:
    """A gang's item travels with its cards, one that is run again with the question's number; others are no items."""
    assert "self.torun.put(i)" in inspect.getsource(remote.WorkerInteractor.handle_command)
    sent = execnet.loads(execnet.dumps({"indices": [(3, ["GPU-a", "GPU-b"]), (3, [], 0), LEAVE]}))
    assert sent == {"indices": [(3, ["GPU-a", "GPU-b"]), (3, [], 0), -1]}
    complete = inspect.getsource(dsession.DSession.worker_runtest_protocol_complete)
    assert "self.sched.mark_test_complete(node, item_index, duration)" in complete


def test_nodes_and_their_gateways() -> None:
    assert isinstance(workermanage.WorkerController.shutting_down, property)
    assert parameters(workermanage.WorkerController.send_runtest_some) == ["self", "indices"]
    group = execnet.Group(execmodel="main_thread_only")
    gateway = group.makegateway("popen//env:A=1")
    try:
        assert gateway.spec.env == {"A": "1"}
        assert gateway._rinfo().pid not in (None, os.getpid())
        assert list(group) == [gateway]
    finally:
        group.terminate(5)


def test_the_workers_loop() -> None:
    source = inspect.getsource(remote.WorkerInteractor.run_one_test)
    for name in ("item_index", "nextitem_index", "torun.get", "runtest_protocol_complete", "duration="):
        assert name in source
    assert "self.run_one_test()" in inspect.getsource(remote.WorkerInteractor.pytest_runtestloop)
    assert "Marker.SHUTDOWN" in inspect.getsource(remote.WorkerInteractor.pytest_runtestloop)
    assert "PYTEST_XDIST_WORKER" in inspect.getsource(remote)


def test_pytest_runs_a_test_without_reporting_it() -> None:
    assert parameters(runner.runtestprotocol) == ["item", "log", "nextitem"]
    assert "_initrequest" in inspect.getsource(runner.runtestprotocol)  # an item may be run more than once


def test_what_a_watchdog_asks() -> None:
    assert parameters(workermanage.WorkerController.notify_inproc) == ["self", "eventname", "kwargs"]
    assert parameters(dsession.DSession.worker_errordown) == ["self", "node", "error"]
    assert "self.queue: Queue[" in inspect.getsource(dsession.DSession)
    # A closed channel is reported unless `_down` says that it was known.
    source = inspect.getsource(workermanage.WorkerController.process_from_remote)
    assert source.index("if not self._down") < source.index('"errordown"')
