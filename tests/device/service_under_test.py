"""A service that does, on command, what a device process has to live through."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cudaboot.errors import PinError, ShimError, UnsupportedError

Array = npt.NDArray[np.generic]


class Service:
    def __init__(self) -> None:
        self.kept: list[Array] = []

    def echo(self, value: Any) -> Any:
        return value

    def double(self, arrays: Sequence[npt.NDArray[np.float32]]) -> list[npt.NDArray[np.float32]]:
        return [array * 2 for array in arrays]

    def swapped(self, first: Array, second: Array) -> list[Array]:
        """The arguments themselves, not copies."""
        return [second, first]

    def channel_is_inherited(self) -> bool:
        return os.get_inheritable(_socket_of_server())

    def filled(self, size: int) -> Array:
        return np.ones(size, np.float32)

    def write_into(self, array: Array) -> None:
        array[...] = 0

    def modules(self) -> list[str]:
        return sorted(sys.modules)

    def prove(self) -> list[str]:
        return [os.environ["CUDA_VISIBLE_DEVICES"]]

    def refuse(self, code: int) -> None:
        """As a shim does: the reason on stderr, past Python's buffers, and a number."""
        os.write(2, b"[pjrt_ffi] the reason\n")
        raise UnsupportedError("returned 99", code) if code == 99 else ShimError(f"returned {code}", code)

    def refuse_at_length(self) -> None:
        sys.stderr.write("a plugin's page\n[pjrt_ffi] the reason\na plugin's other page\n")
        raise ShimError("returned 3", 3)

    def want_too_much(self) -> None:
        raise MemoryError

    def wrong_card(self) -> None:
        raise PinError("not that card")

    def bug(self) -> None:
        raise ZeroDivisionError("a bug")

    def no_data(self) -> Any:
        return object()

    def print_buffered(self, text: str) -> None:
        """Through C's buffer, which a pipe or file empties late."""
        ctypes.CDLL(None).printf(b"%s\n", text.encode())
        raise ShimError("look above")

    def crash(self, number: int) -> None:
        os.write(2, b"on the way down\n")
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)

    def echo_address(self) -> None:
        """A real fault: an address that nobody may read."""
        ctypes.string_at(8)

    def leave(self, status: int) -> None:
        os._exit(status)

    def hang(self) -> None:
        """With the interpreter's lock held, as a plugin that waits for ever does."""
        ctypes.PyDLL(None).sleep(300)

    def hush(self) -> None:
        """Close the channel and live on."""
        os.closerange(3, 100)
        ctypes.PyDLL(None).sleep(300)

    def torn(self) -> None:
        """Half a frame, then nothing."""
        os.write(_socket_of_server(), b"\x10\x00\x00\x00half")
        os._exit(0)

    def babble(self, data: str) -> None:
        """Bytes that are no frame of ours."""
        os.write(_socket_of_server(), bytes.fromhex(data))
        ctypes.PyDLL(None).sleep(300)

    def grandchild(self) -> int:
        return subprocess.Popen(["/bin/sleep", "300"]).pid

    def fork_and_crash(self) -> int:
        """Leave a fork behind that keeps the channel open, and die."""
        child = os.fork()
        if child == 0:
            ctypes.PyDLL(None).sleep(300)
        os.write(2, f"{child}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        return child

    def interruptible(self) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "still here"

    def inherited(self, fd: int) -> bool:
        os.fstat(fd)
        return os.get_inheritable(fd)

    def close(self) -> None:
        os.write(2, b"closed in order\n")


class Slow:
    """A service whose construction takes for ever."""

    def __init__(self) -> None:
        ctypes.PyDLL(None).sleep(300)


class Failing:
    """A service that can not be made."""

    def __init__(self) -> None:
        raise RuntimeError("no such thing here")


def _socket_of_server() -> int:
    return int(sys.argv[1])
