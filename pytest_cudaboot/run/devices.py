"""The device process of one worker: started when first needed, proved, kept warm while clean, and retired.

It is on the worker's own card, or on all the cards of a gang while a test has them.

NumPy comes with the first device, since many workers never need one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cudaboot.errors import DeviceError
from pytest_cudaboot.model import Gpu, Json, to_json
from pytest_cudaboot.probes.lease import lease_folder, occupy
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.run.asides import Asides
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.handles import LowererHandle
from pytest_cudaboot.run.health import broken_by
from pytest_cudaboot.run.lanes import LANE_VARIABLE
from pytest_cudaboot.run.platforms import proved_platform, undecided

if TYPE_CHECKING:
    from pytest_cudaboot.device.client import DeviceProcess
    from pytest_cudaboot.lowerers.base import LowererConfig

# A pytest that is started in a test would take these for its own.
_OURS = ("PYTEST_XDIST_", LANE_VARIABLE)


@dataclass(slots=True)
class _Warm:
    process: DeviceProcess
    config: LowererConfig
    facts: Json
    platform: str
    probed: int = 0  # of the calls that it has answered, how many a probe has seen the end of


class Devices:
    """At most one device process at a time: a warm one holds most of its card's memory.

    :param gpu: the card that this worker is pinned to, or null for the CPU.
    :param logs: folder for the processes' output.
    :param asides: what this run knows of cards that are lost to it; by default this worker is the whole run.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        gpu: Gpu | None,
        logs: Path,
        worker: str,
        asides: Asides | None = None,
    ) -> None:
        self._environ = dict(environ)
        self._own = () if gpu is None else (gpu,)
        self.gpus: tuple[Gpu, ...] = self._own
        self._logs = logs
        self._worker = worker
        self._numbers = itertools.count(1)
        self._warm: _Warm | None = None
        self._busy: dict[str, int] = {}
        self._asides = asides or Asides(logs)
        self._found: DeviceError | None = None

    def hold(self, gpus: Sequence[Gpu]) -> None:
        """Have these cards from now on, a gang's; none of them means the worker's own card again.

        Whatever is on the cards so far leaves them first.
        """
        wanted = tuple(gpus) or self._own
        if wanted != self.gpus:
            self.leave()
            self.gpus = wanted

    @property
    def locks(self) -> tuple[int, ...]:
        """Descriptors for whatever is started on the cards: an orphan then keeps them busy for other runs.

        Each is taken while nobody else is on the card: what the card's last user left behind has to be gone first.
        """
        for gpu in self.gpus:
            if gpu.uuid not in self._busy:
                self._busy[gpu.uuid] = occupy(gpu.uuid, folder=lease_folder(self._environ), alone=True)
        return tuple(self._busy.values())

    @property
    def environment(self) -> dict[str, str]:
        """The pinned environment for whatever is started from this worker, as if from a shell."""
        kept = {name: value for name, value in self._environ.items() if not name.startswith(_OURS)}
        return pin_environment(kept, self.gpus)

    def open(self, config: LowererConfig, evidence: Evidence) -> LowererHandle:
        """A lowerer in a proved device process; the warm one, if it has the same configuration and is well."""
        self._check()
        warm = self._warm
        if warm is None or warm.config != config or not warm.process.alive:
            self.retire()
            warm = self._start(config, evidence)
        warm.process.user = evidence.nodeid
        evidence.ran_on(warm.platform, [gpu.uuid for gpu in self.gpus])
        evidence.note(device_log=str(warm.process.log_path))
        return LowererHandle(warm.process, config, warm.facts, evidence)

    def settle(self, evidence: Evidence) -> DeviceError | None:
        """After a test: hold what it used against the driver, and say what it leaves broken.

        What is broken is ended here, so that the next test starts clean.
        """
        self._check()
        found, self._found = self._found, None
        if found is not None:
            evidence.note(device=found.evidence)
        if why := self._aside():
            evidence.note(set_aside=why)
        return found

    @property
    def pid(self) -> int | None:
        """The warm device process, if there is one."""
        return self._warm.process.pid if self._warm is not None and self._warm.process.alive else None

    def retire(self) -> None:
        """End the device process, so that nothing of this worker is on the card."""
        self._check()
        if self._warm is not None:
            warm, self._warm = self._warm, None
            warm.process.close()
            self._bury(warm.process)

    def enter(self) -> None:
        """Make sure that the cards can be had.

        :raises CardAsideError: if one of them is set aside, or something of this run is left on it.
        """
        for gpu in self.gpus:
            self._asides.enter(gpu.uuid)

    def set_aside(self, survivors: Sequence[str]) -> None:
        """Something that was killed on these cards lives on, so that nobody of this run may use them again."""
        for gpu in self.gpus if survivors else ():
            self._asides.set_aside(gpu.uuid, f"still alive after SIGKILL: {', '.join(survivors)}")

    def leave(self) -> None:
        """Be done with the cards."""
        self.retire()
        while self._busy:
            os.close(self._busy.popitem()[1])

    def _check(self) -> None:
        """Probe the warm process if it was used since it was probed last; what is found is kept for `settle`."""
        warm = self._warm
        if warm is None or warm.process.calls == warm.probed:
            return
        error = broken_by(warm.process)
        warm.probed = warm.process.calls
        if warm.process.broken is not None:
            self._warm, self._found = None, error or self._found
            self._bury(warm.process)

    def _bury(self, process: DeviceProcess) -> None:
        self.set_aside(process.evidence.get("survivors", ()))

    def _aside(self) -> dict[str, str]:
        """Why each of the cards is set aside that is."""
        return {gpu.uuid: why for gpu in self.gpus if (why := self._asides.reason(gpu.uuid))}

    def _start(self, config: LowererConfig, evidence: Evidence) -> _Warm:
        from pytest_cudaboot.device.client import DeviceProcess, prove_pin

        self.enter()
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"device-{self._worker}-{next(self._numbers)}.log"
        env = {**self.environment, **config.environment}
        process = DeviceProcess(env=env, log_path=log, pass_fds=self.locks, budget=evidence.left)
        try:
            for gpu in self.gpus:
                self._asides.started(gpu.uuid, process.pid)
            if self.gpus:
                prove_pin(process, [gpu.uuid for gpu in self.gpus], budget=evidence.left)
            facts: Json = process.call("open", budget=evidence.left, config=to_json(config))
            platform = config.platform if undecided(config, facts) else proved_platform(config, facts)
        except BaseException:
            process.close()  # what is not proved, or half open, is nobody's
            self._bury(process)
            raise
        self._warm = _Warm(process, config, facts, platform, probed=process.calls)
        return self._warm
