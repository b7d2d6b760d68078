"""What other packages add to a run, asked once and held to its form before anybody relies on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.hookspecs import BoxMonitor, LowererOffer, flat
from pytest_cudaboot.model import Gpu, Json, Ran, StartRecord, to_json
from pytest_cudaboot.rules.spec import LOWERERS, is_foreign_condition

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_IMPLEMENTATION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Offers:
    """Plain facts, so that they can travel."""

    lowerers: tuple[LowererOffer, ...] = ()
    conditions: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every lowerer that there is, ours first."""
        return (*LOWERERS, *(offer.name for offer in self.lowerers))

    @property
    def met(self) -> dict[str, str | None]:
        """The conditions of scope that they answer."""
        return {**self.conditions, **{f"device:{offer.name}": offer.absence for offer in self.lowerers}}

    def of(self, name: str) -> LowererOffer | None:
        return next((offer for offer in self.lowerers if offer.name == name), None)

    def require(self, wanted: tuple[str, ...] | None) -> None:
        """Hold the names that the user gave against what there is.

        :raises UsageError: one of them is none.
        """
        for word in wanted or ():
            if word not in self.names:
                raise UsageError(f"--cudaboot-lowerers: {word!r} is not one of {', '.join(self.names)}")


def ask(config: pytest.Config, project: Path, platform: str, environ: Mapping[str, str]) -> Offers:
    """Everything that is offered.

    :raises UsageError: an answer is not what the hook's specification says.
    """
    question = {"project": project, "platform": platform, "environ": environ}
    found: list[LowererOffer] = []
    for offer in flat(config.hook.pytest_cudaboot_lowerers(**question)):
        _check_offer(offer, [*LOWERERS, *(other.name for other in found)])
        found.append(offer)
    met: dict[str, str | None] = {}
    for answer in config.hook.pytest_cudaboot_conditions(**question):
        _check_conditions(answer, met)
        met |= answer
    return Offers(lowerers=tuple(found), conditions=met)


def _check_offer(offer: object, taken: list[str]) -> None:
    if not isinstance(offer, LowererOffer):
        raise UsageError(f"pytest_cudaboot_lowerers: {offer!r} is no LowererOffer")
    if not _NAME.fullmatch(offer.name) or offer.name in taken:
        raise UsageError(
            f"pytest_cudaboot_lowerers: the name {offer.name!r} is no word of its own; taken are {', '.join(taken)}"
        )
    if not _IMPLEMENTATION.fullmatch(offer.implementation):
        raise UsageError(f"pytest_cudaboot_lowerers: {offer.implementation!r} is not module:Class")


def _check_conditions(answer: Mapping[str, str | None], taken: Mapping[str, str | None]) -> None:
    for name in answer:
        if not is_foreign_condition(name) or name in taken:
            raise UsageError(
                f"pytest_cudaboot_conditions: {name!r} is no condition of a package's own, such as package.name"
            )


def skews(config: pytest.Config, toolchain: Json) -> str | None:
    """The first contradiction that another package sees in the toolchain; None if there is none."""
    return next(iter(map(str, flat(config.hook.pytest_cudaboot_skews(toolchain=toolchain)))), None)


class Monitors:
    """The monitors of other packages, told of tests by the controller."""

    def __init__(self, config: pytest.Config, platform: str, gpus: tuple[Gpu, ...]) -> None:
        self._all: list[BoxMonitor] = flat(config.hook.pytest_cudaboot_monitors(platform=platform, gpus=gpus))

    def sent(self, record: StartRecord) -> None:
        """A test begins."""
        self.begin(record.nodeid)

    def begin(self, nodeid: str) -> None:
        """It runs, for the first time or again."""
        for monitor in self._all:
            monitor.begin(nodeid)

    def ended(self, run: Ran) -> Ran:
        """A test has ended: the record of it with what was seen meanwhile."""
        seen = {monitor.name: facts for monitor in self._all if (facts := monitor.end(run.nodeid))}
        return replace(run, evidence={**run.evidence, "monitors": to_json(seen)}) if seen else run
