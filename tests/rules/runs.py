"""One small catalogue, and runs of it in which all is well but for what is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_cudaboot.model import (
    EndRecord,
    Gpu,
    Json,
    ProblemRecord,
    Record,
    ResultRecord,
    Ruling,
    Status,
)
from pytest_cudaboot.rules.verdict import judge
from tests.rules.builders import A, catalog_of, ledger, result, run_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CATALOG = catalog_of(
    s__build={"lowerers": ["xla"]},
    s__train={"on": "each", "lowerers": ["xla", "iree"], "needs": ["s.build"]},
    s__trap={"kind": "gotcha", "canary": "upstream", "lowerers": ["iree"]},
    s__fast={"kind": "claim", "on": "any"},
    s__lines={"kind": "consistency", "track": "document"},
    s__lake={"when": ["lean"], "track": "proofs"},
)
F, X, S, Q = Status.FAILED, Status.CRASHED, Status.SKIPPED, Status.SILENT
WAIVER = {"spec": "s.train", "lowerer": None, "reason": "known", "owner": "ops", "expires": "2026-12-31"}


def judged(*changed: ResultRecord, gpus: Sequence[Gpu] = (A,), end: str | None = None, **facts: Any) -> Json:
    """The verdict of a run in which all is well but for what is given."""
    run = run_record(CATALOG, *gpus, **facts)
    return judge(CATALOG, ledger(CATALOG, run, *changed, end=EndRecord(finished="later", interrupted=end)))


def edited(keep: Callable[[Record], bool], *more: Record, **facts: Any) -> Json:
    """The same for a ledger that lacks lines, or has more of them."""
    records = ledger(CATALOG, run_record(CATALOG, A, **facts))
    return judge(CATALOG, [*filter(keep, records), *more])


def train(status: Status, lowerer: str = "xla", gpu: Gpu | None = A, **facts: Any) -> ResultRecord:
    return result("s.train", status, lowerer=lowerer, gpu=gpu and gpu.uuid, **facts)


def build(status: Status, **facts: Any) -> ResultRecord:
    return result("s.build", status, lowerer="xla", **facts)


def trap(status: Status, role: str = "canary", **facts: Any) -> ResultRecord:
    return result("s.trap", status, lowerer="iree", role=role, **facts)


def everything(_: Record) -> bool:
    return True


def without(kind: type[Record], spec: str | None = None) -> Callable[[Record], bool]:
    """A ledger without its lines of one kind, and without the results of one spec."""
    return lambda record: (
        not isinstance(record, kind)
        and not (isinstance(record, ResultRecord) and spec is not None and record.spec == spec)
    )


def not_of(spec: str) -> Callable[[Record], bool]:
    """As `-k` does: neither collected nor run."""
    return lambda record: spec not in getattr(record, "nodeid", "")


def problem(ruling: Ruling, reason: str = "words") -> ProblemRecord:
    return ProblemRecord(ruling=ruling, reason=reason)
