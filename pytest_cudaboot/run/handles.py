"""What a test has of a device process: a lowerer, and artifacts that are loaded in it. Handles only: they end nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cudaboot.model import Json
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.platforms import proved_platform, undecided

if TYPE_CHECKING:
    from pytest_cudaboot.device.client import DeviceProcess
    from pytest_cudaboot.lowerers.base import Array, LowererConfig


class LowererHandle:
    """A lowerer in its device process, as a test sees it. Every call counts as evidence."""

    def __init__(
        self, process: DeviceProcess, config: LowererConfig, facts: Json, evidence: Evidence
    ) -> None:
        self.name = config.name
        self.platform = config.platform
        self.facts = facts
        self._process = process
        self._config = config
        self._evidence = evidence

    @property
    def alive(self) -> bool:
        """Whether its device process still answers."""
        return self._process.alive

    def open_session(self, path: Path, source: Path | None = None) -> SessionHandle:
        """Load an artifact.

        :raises ShimError: the shim refused it; the message is the shim's own.
        """
        answer = self.call("session_open", path=str(path), source=str(source) if source else None)
        if undecided(self._config, self.facts):
            self.facts = self.call("facts")
            proved_platform(self._config, self.facts)
        return SessionHandle(self, answer["session"], answer["signature"])

    def mapped(self) -> dict[str, list[str]]:
        """Shared objects in the device process: name to paths."""
        mapped: dict[str, list[str]] = self.call("mapped")
        return mapped

    def call(self, verb: str, **arguments: Any) -> Any:
        """One call of the device process, within what is left of the test's budget."""
        self._evidence.act()
        self._evidence.arrays = arguments.get("arrays") or ()
        return self._process.call(verb, budget=self._evidence.left, **arguments)


class SessionHandle:
    """One artifact, loaded in the device process.

    :param signature: `entry`, and `inputs` and `outputs` as lists of {`shape`, `dtype`}.
    """

    def __init__(self, lowerer: LowererHandle, number: int, signature: Json) -> None:
        self._lowerer = lowerer
        self._number = number
        self.signature = signature

    @property
    def entry(self) -> str:
        return str(self.signature["entry"])

    def invoke(
        self,
        arrays: Sequence[Array],
        *,
        function: str | None = None,
        outputs: Sequence[Sequence[int]] | None = None,
    ) -> list[Array]:
        """Run once; arrays are float32 in the graph's order.

        :param function: another name than the artifact's entry.
        :param outputs: other shapes to make room for than the signature's.
        """
        result: list[Array] = self._lowerer.call(
            "invoke",
            session=self._number,
            fn=function or self.entry,
            arrays=list(arrays),
            outputs=outputs,
        )
        return result

    def repeat(
        self, arrays: Sequence[Array], n: int, feedback: Mapping[int, int], loss: int | None = None
    ) -> Json:
        """Run n times inside the device process, output i replacing input `feedback[i]` after each step.

        :returns: `arrays` of the last step, `seconds` and `losses`, one a step.
        """
        result: Json = self._lowerer.call(
            "repeat",
            session=self._number,
            fn=self.entry,
            arrays=list(arrays),
            n=n,
            feedback=[[output, into] for output, into in feedback.items()],
            loss=loss,
        )
        return result

    def call(self, method: str, **arguments: Any) -> Any:
        """Call what only some lowerer's sessions have, such as `memory` of XLA's."""
        return self._lowerer.call("session_call", session=self._number, method=method, **arguments)

    def close(self) -> None:
        self._lowerer.call("session_close", session=self._number)
