"""XLA behind the seam: StableHLO text through the PJRT shim, in the process that calls. It never looks for a plugin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cudaboot.errors import ShimError, SignatureError, UnsupportedError
from pytest_cudaboot.lowerers.shim import DESCRIPTION_BYTES, FFI, Inputs, Outputs, ShimSession, bind, check
from pytest_cudaboot.probes import maps
from pytest_cudaboot.rules.signature import read_signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_cudaboot.lowerers.base import Array, LowererConfig, Shape
    from pytest_cudaboot.model import Json

MARKER = "pjrt_ffi_marker"
ENTRY = b"GetPjrtApi"


NOTHING_RETAINED = 1

# What becomes of an input in a loop; from 0 on it is the output that replaces it.
SEND, HOLD = -1, -2


@dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
    """What stays the same in all steps of a training loop.

    :param roles: one an input: SEND, HOLD, or the output that replaces it.
    :param in_flight: how many steps may be unfinished after each call.
    :param late: whether a step's outputs are those of the one before.
    """

    roles: Sequence[int]
    in_flight: int = 0
    late: bool = False
    replicas: int = 1
    shard: Sequence[bool] = ()


class XlaLowerer:
    """The shim loads the plugin when the first session is made or it is asked for facts, and keeps one client."""

    def __init__(self, config: LowererConfig) -> None:
        self._config = config
        if config.shim is None:
            raise ShimError("XLA is driven through its shim, and none is named")
        self._shim = bind(Path(config.shim))
        if MARKER not in self._shim.extras and not _speaks_pjrt(self._shim.path):
            raise ShimError(f"{config.shim} lacks {MARKER}: it is not the XLA shim")

    def open_session(self, path: Path, source: Path | None = None) -> XlaSession:
        # The shim comes first: what it refuses, it has to refuse in its own words.
        handle = self._shim.lib.iree_ffi_session_create(str(path).encode())
        if handle == FFI.NULL:
            raise ShimError(f"the XLA shim made no session of {str(path)!r}")
        try:
            signature = read_signature((source or path).read_text(errors="replace"))
        except BaseException:
            self._shim.lib.iree_ffi_session_release(handle)
            raise
        return XlaSession(self._shim, handle, signature)

    def facts(self) -> Json:
        # To describe a client makes it, so what it loaded is mapped only after that.
        description = self._shim.describe()
        return {
            "name": self._config.name,
            "platform": self._config.platform,
            "shim": str(self._shim.path),
            "extras": sorted(self._shim.extras),
            "describe": description,
            "mapped": maps.by_name(maps.shared_objects()),
        }

    def close(self) -> None:
        """Nothing is left to release: a PJRT plugin can not be unloaded, so it goes with the process."""


class XlaSession(ShimSession):
    """A session with what only the XLA shim has."""

    def invoke_dp(
        self,
        function: str,
        replicas: int,
        arrays: Sequence[Array],
        shard: Sequence[bool],
        outputs: Sequence[Shape] | None = None,
    ) -> list[Array]:
        """Run on several replicas at once.

        :param arrays: whole inputs; those with `shard` are split evenly by their outer dimension.
        :returns: the outputs of replica 0.
        """
        entry = self._extra("pjrt_ffi_invoke_f32_dp")
        sent, made = Inputs(arrays), Outputs(self.shapes(outputs))
        mask = _mask(shard, len(arrays))
        code = entry(self._handle, function.encode(), replicas, *sent.words, mask, *made.words)
        check(f"pjrt_ffi_invoke_f32_dp of {function!r}", code)
        return made.arrays

    def memory(self) -> Json:
        """What the compiled program takes of its device, bytes by kind; it has not run for that."""
        entry = self._extra("pjrt_ffi_session_memory")
        text = FFI.new("char[]", DESCRIPTION_BYTES)
        check("pjrt_ffi_session_memory", entry(self._handle, text, DESCRIPTION_BYTES))
        facts: Json = json.loads(FFI.string(text))
        return facts

    def invoke_resident(
        self,
        function: str,
        arrays: Sequence[Array],
        resident: tuple[int, int, int],
        *,
        generation: int = 0,
        replicas: int = 1,
        shard: Sequence[bool] = (),
    ) -> list[Array]:
        """Run once with inputs that stay on the device, synchronously.

        :param resident: first input, first output that replaces them (negative: they are held), how many.
        :param generation: held inputs are read from the host again when it changes.
        :returns: the outputs; those that stayed on the device are NaN.
        """
        entry = self._extra("pjrt_ffi_invoke_f32_resident_v2")
        into, outof, count = resident
        sent, made = Inputs(arrays), Outputs(self.shapes(None))
        mask = _mask(shard, len(arrays))
        code = entry(
            *(self._handle, function.encode(), replicas, into, outof, count, generation),
            *(*sent.words, mask, *made.words),
        )
        check(f"pjrt_ffi_invoke_f32_resident_v2 of {function!r}", code)
        return made.arrays

    def resident_read(self, floats: int) -> Array | None:
        """What the device retains, one after another; None where it retains nothing.

        :param floats: how many there are.
        """
        made = Outputs([(floats,)])
        code = self._extra("pjrt_ffi_resident_read")(self._handle, floats, made.words[2][0])
        if code == NOTHING_RETAINED:
            return None
        check("pjrt_ffi_resident_read", code)
        return made.arrays[0]

    def step(
        self,
        function: str,
        arrays: Sequence[Array],
        loop: Loop,
        *,
        on_device: Sequence[int] = (),
        read: Sequence[int] = (),
    ) -> list[Array]:
        """One step of a training loop.

        :param on_device: inputs that are not read from the host again.
        :param read: outputs that are read back; the others are NaN.
        """
        entry = self._extra("pjrt_ffi_step_f32_v1")
        shapes = self.shapes(None)
        sent = Inputs(arrays, on_device)
        made = Outputs(shapes, set(range(len(shapes))) - set(read))
        roles = FFI.new("int32_t[]", _one_each("roles", loop.roles, len(arrays)))
        code = entry(
            *(self._handle, function.encode(), loop.replicas, *sent.words, _mask(loop.shard, len(arrays))),
            *(roles, *made.words, loop.in_flight, int(loop.late)),
        )
        check(f"pjrt_ffi_step_f32_v1 of {function!r}", code)
        return made.arrays

    def flush(self, read: Sequence[int] = ()) -> list[Array]:
        """Wait for all steps in flight.

        :param read: the last step's late outputs that are read back; the others are NaN.
        """
        shapes = self.shapes(None)
        made = Outputs(shapes, set(range(len(shapes))) - set(read))
        count, _, out = made.words
        check("pjrt_ffi_flush_v1", self._extra("pjrt_ffi_flush_v1")(self._handle, count, out))
        return made.arrays

    def _extra(self, name: str) -> Any:
        if name not in self._shim.extras:
            raise UnsupportedError(f"{self._shim.path} does not have {name}", 99)
        return getattr(self._shim.lib, name)


def _speaks_pjrt(path: Path) -> bool:
    """Whether a shim without the marker looks up a PJRT plugin's one symbol, for which it has to have its name."""
    return ENTRY in path.read_bytes()


def _mask(shard: Sequence[bool], inputs: int) -> Any:
    """One byte an input; an empty sequence splits nothing."""
    return FFI.new(
        "unsigned char[]", _one_each("shard", [int(flag) for flag in shard] or [0] * inputs, inputs)
    )


def _one_each(name: str, flags: Sequence[int], inputs: int) -> list[int]:
    """What C reads one of for each input, however many there are."""
    if len(flags) != inputs:
        raise SignatureError(f"{name} has {len(flags)} entries; there are {inputs} inputs, and each has one")
    return list(flags)
