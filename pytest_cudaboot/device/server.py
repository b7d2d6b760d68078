"""The device process: answers calls of one client until that client is gone. It imports nothing above L3.

`python -m pytest_cudaboot.device.server SOCKET ARENA PARENT MODULE:CLASS` with two inherited descriptors and the
process id of the only parent that it may have.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any

from pytest_cudaboot.device import wire
from pytest_cudaboot.errors import CudabootError, DeviceError, PeerGoneError
from pytest_cudaboot.probes.parent import die_with, may_be_debugged

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBC = ctypes.CDLL(None)


def main(argv: list[str]) -> None:
    sock, arena, parent, target = int(argv[0]), int(argv[1]), int(argv[2]), argv[3]
    die_with(parent)
    may_be_debugged()
    # Ctrl-C is the controller's to handle: it decides which calls still have to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    # Programs that a plugin starts must not keep these two open; other descriptors are theirs to inherit.
    os.set_inheritable(sock, False)  # noqa: FBT003 - the standard library takes it by position only
    os.set_inheritable(arena, False)  # noqa: FBT003 - the same
    _serve(_service(target), wire.Channel(socket.socket(fileno=sock)), wire.Arena(arena))
    _flush()
    # A plugin's destructors may crash or hang, and nothing that they would save is needed.
    os._exit(0)


def _service(target: str) -> object:
    module, _, name = target.partition(":")
    service: object = getattr(importlib.import_module(module), name)()
    return service


def _serve(service: object, channel: wire.Channel, arena: wire.Arena) -> None:
    try:
        channel.send(wire.Packer(arena).pack({"value": os.getpid()}))
        while _answer_one(service, channel, arena):
            pass
    except PeerGoneError:
        # The client is gone without a farewell, so there is nobody left to tell.
        return


def _answer_one(service: object, channel: wire.Channel, arena: wire.Arena) -> bool:
    """Take one call and answer it; False after the call that closes."""
    request, used = wire.unpack(channel.receive(), arena, copy=False)
    verb = request["verb"]
    # There is one such timer a process, and here nobody else wants it. The client kills a little later.
    faulthandler.dump_traceback_later(request["stacks_after"], exit=False)
    answer = _answer(service, verb, request["arguments"])
    # The arguments are views of the arena and may be part of the answer, so it is placed behind them.
    packer = wire.Packer(arena, used)
    try:
        frame = packer.pack(answer)
    except TypeError as error:
        frame = wire.Packer(arena).pack(_failure("DeviceError", f"{verb!r} answered: {error}"))
    _flush()
    faulthandler.cancel_dump_traceback_later()
    channel.send(frame)
    return bool(verb != "close")


def _answer(service: object, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": _method(service, verb)(**arguments)}
    except CudabootError as error:
        return _failure(type(error).__name__, str(error), code=getattr(error, "code", None))
    except MemoryError as error:
        words = f"{verb!r} was refused memory on the host: {str(error) or 'MemoryError'}"
        return _failure("HostMemoryError", f"{words}\n{traceback.format_exc().rstrip()}")
    except Exception as error:  # noqa: BLE001 - the edge of a process: whatever a service raises is an answer
        words = f"{verb!r} raised {type(error).__name__}: {error}"
        return _failure("DeviceError", f"{words}\n{traceback.format_exc().rstrip()}")


def _method(service: object, verb: str) -> Callable[..., Any]:
    method: Callable[..., Any] | None = None if verb.startswith("_") else getattr(service, verb, None)
    if not callable(method):
        verbs = (
            name for name in dir(service) if not name.startswith("_") and callable(getattr(service, name))
        )
        raise DeviceError(f"no verb {verb!r}; this service has: {', '.join(verbs)}")
    return method


def _failure(error: str, message: str, code: int | None = None) -> dict[str, Any]:
    return {"error": error, "message": message, "code": code}


def _flush() -> None:
    """Whatever was written so far has to be in the log before the answer is out."""
    for stream in (sys.stdout, sys.stderr):
        # A log that can not be written, on a full disk, is no reason to die.
        with contextlib.suppress(OSError):
            stream.flush()
    _LIBC.fflush(None)


if __name__ == "__main__":
    main(sys.argv[1:])
