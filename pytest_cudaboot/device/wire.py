"""The language of a device process and its client: framed JSON over one socket, arrays through one memfd.

Only plain data crosses: a peer that went mad can send nonsense, but nothing that runs.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import select
import socket
import struct
import time
from typing import Any

import numpy as np

from pytest_cudaboot.errors import LateError, PeerGoneError

FRAME_LIMIT = 64 << 20
ARENA_START = 1 << 20
ALIGNMENT = 64
ARRAY_KEY = "$array"

_LENGTH = struct.Struct("<I")
_PLAIN_KINDS = "biufc"


class Arena:
    """Memory that both ends map; it only ever grows, since a shorter file would fault the other end."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = self._mapped(os.fstat(fd).st_size)

    @classmethod
    def create(cls) -> Arena:
        fd = os.memfd_create("cudaboot-arena", os.MFD_CLOEXEC)
        os.ftruncate(fd, ARENA_START)
        return cls(fd)

    def put(self, array: np.ndarray[Any, Any], offset: int) -> None:
        self.view(array.shape, array.dtype.str, offset)[...] = array

    def view(self, shape: tuple[int, ...], dtype: str, offset: int) -> np.ndarray[Any, Any]:
        """An array over the arena itself; what comes next overwrites it."""
        kind = np.dtype(dtype)
        end = offset + kind.itemsize * math.prod(shape)
        size = os.fstat(self.fd).st_size if end > len(self._map) else len(self._map)
        if kind.kind not in _PLAIN_KINDS or min((offset, *shape)) < 0 or end > size:
            raise PeerGoneError(f"no array of {dtype!r} {shape} at byte {offset} of an arena of {size} bytes")
        if size > len(self._map):
            self._map = self._mapped(size)
        return np.ndarray(shape, kind, self._map, offset)

    def reserve(self, size: int) -> None:
        if size > len(self._map):
            # Doubling keeps a slowly growing series of calls from mapping anew each time.
            os.ftruncate(self.fd, max(size, 2 * len(self._map)))
            self._map = self._mapped(os.fstat(self.fd).st_size)

    def close(self) -> None:
        os.close(self.fd)
        # A map holds a descriptor of its own. Where views are still alive, the memory lives as long as they do.
        with contextlib.suppress(BufferError):
            self._map.close()

    def _mapped(self, size: int) -> mmap.mmap:
        return mmap.mmap(self.fd, size)


class Packer:
    """Turns arguments into a frame: plain data as JSON, arrays into the arena from `offset` on."""

    def __init__(self, arena: Arena, offset: int = 0) -> None:
        self._arena = arena
        self.offset = offset
        self._arrays: list[tuple[np.ndarray[Any, Any], int]] = []

    def pack(self, value: Any) -> bytes:
        """The frame's bytes; nothing is written to the arena unless all of `value` is plain."""
        plain = self._plain(value)
        frame = json.dumps([self.offset, plain]).encode()
        if len(frame) > FRAME_LIMIT:
            raise TypeError(f"{len(frame)} bytes of plain data exceed {FRAME_LIMIT}; send arrays instead")
        self._arena.reserve(self.offset)
        for array, offset in self._arrays:
            self._arena.put(array, offset)
        return frame

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _PLAIN_KINDS:
            return self._placed(np.asarray(value))
        if isinstance(value, dict) and ARRAY_KEY not in value and all(isinstance(key, str) for key in value):
            return {key: self._plain(item) for key, item in value.items()}
        raise TypeError(
            f"only plain data and arrays of numbers travel, not {type(value).__name__} {value!r:.80}"
        )

    def _placed(self, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        offset = self.offset
        self._arrays.append((array, offset))
        self.offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        return {ARRAY_KEY: [list(array.shape), array.dtype.str, offset]}


def unpack(frame: bytes, arena: Arena, *, copy: bool) -> tuple[Any, int]:
    """A frame's value, and where its arrays end.

    :param copy: whether arrays have to outlive the next frame; else they are read-only views of the arena.
    """
    try:
        used, value = json.loads(frame)
        return _restored(value, arena, copy=copy), int(used)
    except (ValueError, TypeError, RecursionError) as error:
        raise PeerGoneError(f"a frame of {len(frame)} bytes makes no sense: {error}") from error


def _restored(value: Any, arena: Arena, *, copy: bool) -> Any:
    if isinstance(value, list):
        return [_restored(item, arena, copy=copy) for item in value]
    if not isinstance(value, dict):
        return value
    if ARRAY_KEY not in value:
        return {key: _restored(item, arena, copy=copy) for key, item in value.items()}
    shape, dtype, offset = value[ARRAY_KEY]
    view = arena.view(tuple(shape), dtype, offset)
    if copy:
        return view.copy()
    view.flags.writeable = False
    return view


class Channel:
    """Whole frames over a stream socket, each with a deadline; also ends when a watched descriptor is ready.

    :param watch: a pidfd of the peer: a child of it may hold the socket open after it died.
    """

    def __init__(self, sock: socket.socket, watch: int | None = None) -> None:
        self._sock = sock
        self._watch = watch
        sock.settimeout(0)

    def send(self, frame: bytes, deadline: float | None = None) -> None:
        rest = memoryview(_LENGTH.pack(len(frame)) + frame)
        while rest:
            try:
                rest = rest[self._sock.send(rest, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
            except OSError as error:
                raise PeerGoneError(f"the other end is gone: {error.strerror}") from error

    def receive(self, deadline: float | None = None) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, deadline))
        if length > FRAME_LIMIT:
            raise PeerGoneError(f"a frame of {length} bytes was announced; at most {FRAME_LIMIT} are sent")
        return bytes(self._exactly(length, deadline))

    def close(self) -> None:
        self._sock.close()

    def _exactly(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                count = self._sock.recv_into(rest)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            except OSError as error:
                raise PeerGoneError(f"the other end is gone: {error.strerror}") from error
            if count == 0:
                raise PeerGoneError(f"the other end closed with {len(rest)} of {size} bytes missing")
            rest = rest[count:]
        return data

    def _wait(self, event: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        if self._watch is not None:
            poll.register(self._watch, select.POLLIN)
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = [fd for fd, _ in poll.poll(timeout)]
        if not ready:
            raise LateError("the deadline passed")
        # What was written before the end still counts, so the socket is asked once more.
        if self._sock.fileno() not in ready and not select.select([self._sock], [], [], 0)[0]:
            raise PeerGoneError("the other process ended")
