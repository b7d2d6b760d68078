"""Start foreign programs and end them: the only module that imports subprocess. It never uses a shell.

Whatever is started leads a session of its own, so that a signal to its group reaches its children and never
ours, and asks the kernel to be killed when the thread that started it ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_cudaboot.errors import CommandCrashError, CommandError, CommandHangError, ToolMissingError
from pytest_cudaboot.probes import procfs
from pytest_cudaboot.probes.recipes import environment_changes, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KILL_SECONDS = 5.0
TAIL_CHARS = 4000
_SHELL = 128  # what a shell adds to the number of the signal that its command died of
_FATAL = (
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGKILL,
    signal.SIGSEGV,
)

# Where util-linux's setpriv is missing: ask for the same, check that nobody died in between, become the program.
_EXEC_WRAPPER = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "if os.getppid() != int(sys.argv[1]): os._exit(137)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """A command that ended.

    :param env_changes: what differs from the environment that this process was started with; None is "unset".
    :param returncode: exit status, or minus the number of the signal.
    :param seconds: wall time.
    """

    argv: tuple[str, ...]
    cwd: str
    env_changes: dict[str, str | None]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    def recipe(self) -> str:
        """One line to paste that runs this command again."""
        return recipe(self.argv, cwd=self.cwd, env_changes=self.env_changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What became of a killed group: the leader's return code (None while it can not be reaped), and who lives."""

    returncode: int | None
    survivors: tuple[str, ...]


class ProcessGroup:
    """A running program with everything in its process group."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid
        try:
            self.pidfd = os.pidfd_open(popen.pid)
        except OSError:
            popen.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(KILL_SECONDS)
            raise

    @property
    def returncode(self) -> int | None:
        return self._popen.returncode

    def wait(self, seconds: float) -> bool:
        """Whether the leader ended within `seconds`. It stays a zombie, so that its number stays taken."""
        if self._popen.returncode is not None:
            return True
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def kill(self, *, seconds: float = KILL_SECONDS) -> Ending:
        """End the group, reap the leader, and wait a bounded time: a process in uninterruptible sleep stays."""
        if self._popen.returncode is not None:
            return Ending(returncode=self._popen.returncode, survivors=())
        # The leader is not reaped before this line, so the number can not have passed to a foreign group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + seconds
        self._reap(seconds)
        survivors = procfs.survivors(self.pid, deadline)
        if self._popen.returncode is None:
            self._reap(0.0)
        return Ending(returncode=self._popen.returncode, survivors=survivors)

    def _reap(self, seconds: float) -> None:
        if self.wait(seconds):
            self._popen.wait()
            os.close(self.pidfd)


def run_command(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    budget: float,
    stdin: str | None = None,
    check: bool = True,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run a program to its end and return both streams.

    :param env: the whole environment of the program.
    :param budget: seconds until it counts as hung and its group is killed.
    :param check: raise :class:`CommandError` for a return code other than 0.
    :param pass_fds: descriptors that it and its children inherit.
    """
    words = tuple(os.fspath(word) for word in argv)
    # Files, not pipes: a daemon that keeps a pipe open would make the end of the program unobservable.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _stdin_file(stdin) as source:
        group = start_process(
            words, cwd=cwd, env=env, stdin=source, stdout=out, stderr=err, pass_fds=pass_fds
        )
        in_time, seconds, ending = _ended(group, budget)
        done = Completed(
            argv=words,
            cwd=os.fspath(cwd),
            env_changes=environment_changes(env),
            returncode=-signal.SIGKILL if ending.returncode is None else ending.returncode,
            stdout=_text(out),
            stderr=_text(err),
            seconds=seconds,
        )
    if not in_time or (check and done.returncode != 0):
        ended = ended_by(done.returncode) if in_time else f"did not end within {budget:g} s and was killed"
        kind = CommandHangError if not in_time else CommandCrashError if crashed(done) else CommandError
        raise kind(failure(done, ended, ending.survivors), ending.survivors)
    return done


def _ended(group: ProcessGroup, budget: float) -> tuple[bool, float, Ending]:
    """Whether a program ended by itself, after how many seconds, and how; whatever happens, none of it lives on."""
    started, in_time = time.monotonic(), False
    try:
        in_time = group.wait(budget)
    finally:
        seconds, ending = time.monotonic() - started, group.kill()
    return in_time, seconds, ending


def start_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    stderr: IO[bytes] | int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> ProcessGroup:
    """Start a program as the leader of its own session; it is killed when the calling thread ends."""
    _check_program(argv[0], cwd, env.get("PATH", os.defpath))
    popen = subprocess.Popen(  # noqa: S603 - a list, never a shell; the caller names the program
        [*_death_wrapper(), *argv],
        cwd=cwd,
        env=dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    )
    return ProcessGroup(popen)


def _check_program(name: str, cwd: str | os.PathLike[str], path: str) -> None:
    if not Path(cwd).is_dir():
        raise CommandError(f"no directory {os.fspath(cwd)!r} to run {name!r} in")
    # A relative program is looked for where it will run, not where we are.
    place = os.fspath(Path(cwd, name)) if "/" in name else path
    if shutil.which(place if "/" in name else name, path=path) is None:
        raise ToolMissingError(f"no program {name!r}; looked in: {place}")


def ended_by(returncode: int) -> str:
    """A return code in words: `exit status 3`, `died of SIGSEGV`, `exit status 139, as shells say SIGSEGV`."""
    if returncode < 0:
        return f"died of {_signal_name(-returncode)}"
    told = f", as shells say {_signal_name(returncode - _SHELL)}" if _is_fatal(returncode - _SHELL) else ""
    return f"exit status {returncode}{told}"


def crashed(completed: Completed) -> bool:
    """Whether a command died of a signal, by its own return code or by the word of the shell that ran it."""
    return completed.returncode < 0 or _is_fatal(completed.returncode - _SHELL)


def _is_fatal(number: int) -> bool:
    return number in _FATAL


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def failure(completed: Completed, ended: str, survivors: Sequence[str] = ()) -> str:
    """The message of a failed command: what happened, both streams, and the line to run it again."""
    parts = [f"{completed.argv[0]}: {ended} after {completed.seconds:.1f} s"]
    if survivors:
        parts.append(f"still alive after SIGKILL: {', '.join(survivors)}")
    for name, text in (("stdout", completed.stdout), ("stderr", completed.stderr)):
        if text.strip():
            parts.append(f"--- {name} ---\n{tail(text)}")
    parts.append(f"to run it again:\n{completed.recipe()}")
    return "\n".join(parts)


def tail(text: str, limit: int = TAIL_CHARS) -> str:
    """The end of a text, saying how much was left out."""
    text = text.rstrip()
    if len(text) <= limit:
        return text
    return f"[{len(text) - limit} characters before this left out]\n{text[-limit:]}"


def _death_wrapper() -> tuple[str, ...]:
    """Words to put before a command so that it dies with the *thread* that starts it."""
    setpriv = _setpriv()
    if setpriv is not None:
        return (setpriv, "--pdeathsig", "KILL", "--")
    return (sys.executable, "-I", "-S", "-c", _EXEC_WRAPPER, str(os.getpid()))


@functools.cache
def _setpriv() -> str | None:
    """setpriv, if there is one that knows the option; BusyBox has a program of that name that does not."""
    found = shutil.which("setpriv")
    if found is None:
        return None
    try:
        trial = subprocess.run(  # noqa: S603 - a fixed list of words
            [found, "--pdeathsig", "KILL", "--", found, "--version"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=KILL_SECONDS,
        )
    except subprocess.TimeoutExpired:  # a machine that has no time for it; the wrapper needs no other program
        return None
    return found if trial.returncode == 0 else None


@contextlib.contextmanager
def _stdin_file(text: str | None) -> Iterator[IO[bytes] | int]:
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
