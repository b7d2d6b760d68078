"""The language between a device process and its client, and what happens when one end breaks it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from pytest_cudaboot.device import wire
from pytest_cudaboot.errors import LateError, PeerGoneError


@pytest.fixture
def arena() -> Iterator[wire.Arena]:
    arena = wire.Arena.create()
    yield arena
    arena.close()


@pytest.fixture
def ends() -> Iterator[tuple[wire.Channel, socket.socket]]:
    """A channel, and the bare socket of its peer."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield wire.Channel(ours), theirs


Ends = tuple[wire.Channel, socket.socket]


def soon() -> float:
    return time.monotonic() + 10


def test_a_frame_in_single_bytes_is_one_frame(ends: Ends) -> None:
    channel, peer = ends
    frame = b"\x05\x00\x00\x00hello"
    trickle = threading.Thread(target=lambda: [peer.send(frame[i : i + 1]) for i in range(len(frame))])
    trickle.start()

    assert channel.receive(soon()) == b"hello"
    trickle.join()


def test_two_frames_in_one_piece_are_two(ends: Ends) -> None:
    channel, peer = ends
    peer.send(b"\x01\x00\x00\x00a\x00\x00\x00\x00")

    assert (channel.receive(soon()), channel.receive(soon())) == (b"a", b"")


def test_a_frame_larger_than_the_sockets_buffer_passes(ends: Ends) -> None:
    channel, peer = ends
    frame = bytes(4 << 20)
    reader = threading.Thread(target=lambda: peer.recv(4 + len(frame), socket.MSG_WAITALL))
    reader.start()
    channel.send(frame, soon())
    reader.join(10)

    assert not reader.is_alive()


def test_a_peer_that_does_not_read_makes_sending_late(ends: Ends) -> None:
    with pytest.raises(LateError):
        ends[0].send(bytes(4 << 20), time.monotonic() + 0.1)


def test_a_peer_that_does_not_answer_is_late(ends: Ends) -> None:
    channel, peer = ends
    peer.send(b"\x05\x00\x00\x00hel")

    with pytest.raises(LateError):
        channel.receive(time.monotonic() + 0.1)


def test_a_torn_frame_says_how_much_is_missing(ends: Ends) -> None:
    channel, peer = ends
    peer.send(b"\x05\x00\x00\x00hel")
    peer.close()

    with pytest.raises(PeerGoneError, match="closed with 2 of 5 bytes missing"):
        channel.receive(soon())


def test_a_broken_pipe_is_a_peer_that_is_gone(ends: Ends) -> None:
    channel, peer = ends
    peer.close()

    with pytest.raises(PeerGoneError, match="the other end is gone: Broken pipe"):
        channel.send(b"hello", soon())


def test_a_broken_pipe_raises_no_signal(ends: Ends) -> None:
    """Somebody in this process may have given SIGPIPE back its deadly default."""
    channel, peer = ends
    handled: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: handled.append(number))
    try:
        peer.close()
        with pytest.raises(PeerGoneError):
            channel.send(b"hello", soon())
    finally:
        signal.signal(signal.SIGPIPE, before)

    assert handled == []


def test_an_oversized_announcement_is_not_believed(ends: Ends) -> None:
    channel, peer = ends
    peer.send(b"\xff\xff\xff\x7f")

    with pytest.raises(PeerGoneError, match="a frame of 2147483647 bytes was announced"):
        channel.receive(soon())


def test_the_end_of_the_watched_process_ends_the_wait() -> None:
    """Here a pipe stands for the pidfd: both become readable."""
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs, os.fdopen(reader), os.fdopen(writer, "wb") as process:
        process.write(b"x")
        process.flush()
        channel = wire.Channel(ours, watch=reader)
        theirs.send(b"\x01\x00\x00\x00a")

        assert channel.receive(soon()) == b"a"
        with pytest.raises(PeerGoneError, match="the other process ended"):
            channel.receive(soon())


def test_an_oversized_frame_is_not_sent(arena: wire.Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FRAME_LIMIT", 10)

    with pytest.raises(TypeError, match=r"\d+ bytes of plain data exceed 10; send arrays instead"):
        wire.Packer(arena).pack("more than ten bytes")


@pytest.mark.parametrize(
    "value", [{1: 2}, {"$array": 1}, {1, 2}, b"bytes", np.array(["text"]), np.array([object()])]
)
def test_only_plain_data_is_packed(arena: wire.Arena, value: object) -> None:
    with pytest.raises(TypeError, match="only plain data and arrays of numbers travel"):
        wire.Packer(arena).pack(value)


def test_arrays_lie_aligned_behind_one_another(arena: wire.Arena) -> None:
    packer = wire.Packer(arena)
    frame = packer.pack([np.zeros(3, np.int8), np.ones(5)])
    (first, second), used = wire.unpack(frame, arena, copy=False)

    assert (packer.offset, used) == (128, 128)
    assert (first.sum(), second.sum()) == (0, 5)


def test_a_view_of_a_grown_arena_stays_valid(arena: wire.Arena) -> None:
    """The other end may have grown it, and views of the old map may be in use."""
    other = wire.Arena(os.dup(arena.fd))
    frame = wire.Packer(arena).pack(np.arange(8))
    before, _ = wire.unpack(frame, other, copy=False)
    large, _ = wire.unpack(wire.Packer(arena, 64).pack(np.ones(1 << 20)), other, copy=False)

    assert (before.sum(), large.sum()) == (28, 1 << 20)
    other.close()


@pytest.mark.parametrize(
    "descriptor", [[[2], "<f4", -4], [[-1], "<f4", 0], [[1 << 40], "<f4", 0], [[2], "|O", 0]]
)
def test_an_array_outside_the_arena_is_refused(arena: wire.Arena, descriptor: object) -> None:
    frame = json.dumps([0, {"$array": descriptor}]).encode()

    with pytest.raises(
        PeerGoneError, match=r"no array of '.*' \(.*,\) at byte .* of an arena of 1048576 bytes"
    ):
        wire.unpack(frame, arena, copy=True)


@pytest.mark.parametrize("descriptor", [[["x"], "<f4", 0], [[2], "??", 0], [[2], "<f4"], 7])
def test_a_descriptor_that_is_none_makes_no_sense(arena: wire.Arena, descriptor: object) -> None:
    frame = json.dumps([0, {"$array": descriptor}]).encode()

    with pytest.raises(PeerGoneError, match=r"a frame of \d+ bytes makes no sense"):
        wire.unpack(frame, arena, copy=True)


def test_a_signal_in_the_middle_of_a_frame_is_no_end(ends: Ends) -> None:
    """Reading goes on after a handler has run, and what was read before is kept."""
    channel, peer = ends
    handled: list[int] = []

    def handle(number: int, _: object) -> None:
        handled.append(number)
        peer.sendall(b"lo")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        peer.sendall(b"\x05\x00\x00\x00hel")
        signal.setitimer(signal.ITIMER_REAL, 0.05)

        assert channel.receive(soon()) == b"hello"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert handled == [signal.SIGALRM]
