"""Drive a device process: start it, call it within a budget, and end it whatever it does. Never touches a device."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest_cudaboot
from pytest_cudaboot import errors
from pytest_cudaboot.device import wire
from pytest_cudaboot.errors import (
    CudabootError,
    DeviceCrashError,
    DeviceError,
    DeviceGoneError,
    DeviceHangError,
    LateError,
    PeerGoneError,
    PinError,
    ShimError,
)
from pytest_cudaboot.probes import process, procfs
from pytest_cudaboot.probes.debugger import native_stacks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVER = "pytest_cudaboot.device.server"
SERVICE = "pytest_cudaboot.device.service:DeviceService"
START_BUDGET = 60.0
CLOSE_BUDGET = 10.0
EXIT_SECONDS = 5.0
_SHIMS_OWN = re.compile(r"\[\w+_ffi\] ")


class DeviceProcess:
    """One disposable process that alone touches a device. It is started by the constructor and ended by `close`.

    It asks to be killed when the *thread* that started it ends, so start it from a thread that lives as long as
    it is needed. Calls are made from one thread at a time.

    :param env: the whole environment of the process, with its pin in `CUDA_VISIBLE_DEVICES`.
    :param log_path: its stdout and stderr are appended there.
    :param target: `module:Class` of the service; its public methods are the verbs.
    :param cwd: where relative names of shims and data are looked for.
    :param pass_fds: descriptors that it and its children inherit, such as the lock of the card.

    `user` is for whoever shares it among tests: the one that it is to be blamed on when it ends. `calls` counts what it
    was asked, `broken` says in words why it answers no more, and `cause` in a cell's word, if it was not closed in order.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        log_path: Path,
        target: str = SERVICE,
        python: str = sys.executable,
        cwd: str | os.PathLike[str] = ".",
        pass_fds: Sequence[int] = (),
        budget: float = START_BUDGET,
    ) -> None:
        self.log_path = log_path
        self._env = dict(env)
        self.visible = env.get("CUDA_VISIBLE_DEVICES")
        self.broken: str | None = None
        self.cause: str | None = None
        self.user: str | None = None
        self.calls = 0
        self.evidence: dict[str, Any] = {}
        with contextlib.ExitStack() as undo:
            self._arena = undo.enter_context(contextlib.closing(wire.Arena.create()))
            ours, theirs = map(undo.enter_context, socket.socketpair())
            with theirs, log_path.open("ab") as log:
                self._told = log.tell()
                fds = (theirs.fileno(), self._arena.fd)
                words = (python, "-P", "-m", SERVER, *map(str, (*fds, os.getpid())), target)
                self._group = process.start_process(
                    words, cwd=cwd, env=_importable(env), stdout=log, stderr=log, pass_fds=(*fds, *pass_fds)
                )
            undo.pop_all()
        self.pid = self._group.pid
        self._channel = wire.Channel(ours, watch=self._group.pidfd)
        self._exchange("start", None, budget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self.broken is None and not self._group.wait(0)

    def call(self, verb: str, /, *, budget: float, **arguments: Any) -> Any:
        """Have the service do something and return its answer; arrays come back as copies.

        :param budget: seconds until the process counts as hung, shows its stacks and is killed.
        :raises DeviceCrashError: it died; every later call says so at once.
        :raises DeviceHangError: it did not answer; every later call says so at once.
        :raises DeviceGoneError: it had ended before this call.
        :raises CudabootError: whatever the service raised, as the same class; the process lives on.
        """
        if self.broken is not None:
            under = f" (under {self.user})" if self.cause and self.user else ""
            words = f"{verb!r} was not sent: {self.broken}{under}"
            raise DeviceGoneError(words, self.evidence, cause=self.cause, culprit=self.user)
        self.calls += 1
        stacks_after = max(0.001, budget - min(1.0, budget / 4))
        request = {"verb": verb, "stacks_after": stacks_after, "arguments": arguments}
        return self._exchange(verb, wire.Packer(self._arena).pack(request), budget)

    def close(self) -> None:
        """Let the service close what it has open, and end the group; safe to call twice and after a crash."""
        if self.broken is None:
            try:
                self.call("close", budget=CLOSE_BUDGET)
                self._group.wait(EXIT_SECONDS)
            except CudabootError as error:
                self.evidence["close"] = str(error)
            self._end()
            self.broken = f"device process {self.pid} was closed"

    def condemn(self, why: str) -> None:
        """End a process that answers, but whose answers count no more; it is given no chance to close anything."""
        if self.broken is None:
            self._end()
            self.cause = "run"
            self.broken = f"device process {self.pid} was ended: {why}"

    def _exchange(self, verb: str, frame: bytes | None, budget: float) -> Any:
        # What it wrote since its last answer is told as well: it may have died before this call began.
        since = self._told
        deadline = time.monotonic() + budget
        try:
            if frame is not None:
                self._channel.send(frame, deadline)
            answer, _ = wire.unpack(self._channel.receive(deadline), self._arena, copy=True)
        except PeerGoneError as error:
            raise self._crashed(verb, error, since) from None
        except LateError:
            raise self._hung(verb, budget, since) from None
        except BaseException:
            # Half a frame may be on its way, so no later answer could be told from this one's.
            self._end()
            self.broken = f"device process {self.pid} was interrupted during {verb!r} and killed"
            raise
        self._told = self._log_size()
        if "error" in answer:
            raise self._raised(answer, since)
        return answer["value"]

    def _crashed(self, verb: str, error: PeerGoneError, since: int) -> DeviceCrashError:
        died = self._group.wait(EXIT_SECONDS)
        ended = self._end()
        what = process.ended_by(ended) if died and ended is not None else f"no longer answers ({error})"
        self.cause = "crash"
        return DeviceCrashError(*self._death(f"{what} during {verb!r}", verb, since))

    def _hung(self, verb: str, budget: float, since: int) -> DeviceHangError:
        state = procfs.process_state(self.pid)
        self.evidence["state"] = state.letter if state else None
        self._take_stacks(since)
        self._end()
        self.cause = "hang"
        return DeviceHangError(
            *self._death(f"did not answer {verb!r} within {budget:g} s; killed", verb, since)
        )

    def _take_stacks(self, since: int) -> None:
        """Python's, which the process wrote itself by now, and C's if there is a debugger, in one file."""
        path = self.log_path.with_suffix(".stacks")
        try:
            path.write_text(f"{self._written(since)}\n")
            self.evidence |= {"stacks": str(path), "debugger": native_stacks(self.pid, path, self._env)}
        except OSError as error:  # a full disk; the process has to be ended all the same
            self.evidence["debugger"] = f"no stacks: {error}"

    def _death(self, what: str, verb: str, since: int) -> tuple[str, dict[str, Any]]:
        self.broken = f"device process {self.pid} {what}"
        if survivors := self.evidence.get("survivors"):
            self.broken += f"; still alive after SIGKILL: {', '.join(survivors)}"
        written = self._written(since)
        self.evidence |= {"verb": verb, "log": str(self.log_path), "log_tail": written}
        return "\n".join(filter(None, (self.broken, written))), self.evidence

    def _raised(self, answer: dict[str, Any], since: int) -> CudabootError:
        """The service's error as it was, with what the process wrote meanwhile: there a shim says why."""
        # A plugin may write pages around the shim's one line, and a reason in a table is the beginning of the message.
        lines = self._written(since).splitlines()
        lines.sort(key=lambda line: _SHIMS_OWN.match(line) is None)
        message = "\n".join(filter(None, (answer["message"], *lines)))
        kind = getattr(errors, str(answer["error"]), None)
        if not (isinstance(kind, type) and issubclass(kind, CudabootError)):
            return DeviceError(f"{answer['error']}: {message}")
        return kind(message, answer["code"]) if issubclass(kind, ShimError) else kind(message)

    def _end(self) -> int | None:
        ending = self._group.kill()
        self._channel.close()
        self._arena.close()
        self.evidence |= {"returncode": ending.returncode, "survivors": list(ending.survivors)}
        return ending.returncode

    def _log_size(self) -> int:
        return self.log_path.stat().st_size

    def _written(self, since: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(since)
            return process.tail(log.read().decode(errors="replace"))


def prove_pin(device: DeviceProcess, expected: Sequence[str], *, budget: float = START_BUDGET) -> None:
    """Hold the cards that a device process really sees against those that it was pinned to."""
    seen = device.call("prove", budget=budget)
    if list(seen) != list(expected):
        raise PinError(
            f"device process {device.pid} sees {list(seen)!r}, but was pinned to {list(expected)!r} "
            f"(CUDA_VISIBLE_DEVICES={device.visible!r})"
        )


def _importable(env: Mapping[str, str]) -> dict[str, str]:
    """An environment in which another interpreter finds this very package, wherever it was imported from."""
    root = os.fspath(Path(pytest_cudaboot.__file__).parents[1])
    if Path(root).name in {"site-packages", "dist-packages"}:
        return dict(env)
    given = env.get("PYTHONPATH")
    return {**env, "PYTHONPATH": f"{given}{os.pathsep}{root}" if given else root}
