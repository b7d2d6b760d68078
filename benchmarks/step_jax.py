"""The JAX side of step_against_jax.py: the very text of an artifact, under `jax.jit`, in each of the five ways.

`python step_jax.py NET.mlir NET.npz WARMUP STEPS` prints one JSON object like that of step_driver.c.

The text becomes a `jax.export.Exported` (its module replaced, its avals those of the artifact), whose `call` is jitted
with the parameters donated. So StableHLO goes in as it is, and what runs is JAX's own C++ dispatch.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jaxlib.mlir.dialects import stablehlo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IN_FLIGHT = 8

# XLA's own: a CPU reads an array of the host where it lies if it is aligned so.
ALIGNMENT = 64

# Sent into a loop, it asks for the last step's loss.
WANTED = True


def compile_text(path: Path, inputs: list[Any], outputs: list[tuple[int, ...]], updated: list[int]) -> Any:
    """The artifact as a jitted function, with the inputs `updated` donated."""
    text = path.read_text().replace(f"@{path.stem}(", "@main(")
    frame = export.export(jax.jit(lambda *_: tuple(jnp.zeros(shape, jnp.float32) for shape in outputs)))
    shaped = frame(*[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs])
    code = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_minimum_version())
    exported = dataclasses.replace(
        shaped, mlir_module_serialized=code, module_kept_var_idx=tuple(range(len(inputs)))
    )
    return jax.jit(exported.call, donate_argnums=tuple(updated))


def aligned(array: Any) -> Any:
    """A copy whose memory starts at a multiple of 64 bytes, as the C side's does."""
    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Loop:
    """One net's step in a loop. Parameters are a run of inputs; the loss is the last output."""

    def __init__(self, path: Path, data: Any) -> None:
        count = len([name for name in data if name.startswith("in")])
        self.inputs = [aligned(data[f"in{index}"]) for index in range(count)]
        self.roles = data["roles"].tolist()
        outputs = [tuple(shape[1 : 1 + shape[0]]) for shape in data["outputs"].tolist()]
        self.updated = [index for index, role in enumerate(self.roles) if role >= 0]
        self.first, self.last = self.updated[0], self.updated[-1] + 1
        self.step = compile_text(path, self.inputs, outputs, self.updated)

    def on_device(self, indexes: slice) -> list[Any]:
        return [jax.device_put(array) for array in self.inputs[indexes]]

    def resident(self, in_flight: int) -> Iterator[float | None]:
        """Nothing crosses the bus: cases a and b."""
        head, tail = self.on_device(slice(self.first)), self.on_device(slice(self.last, None))
        parameters = self.on_device(slice(self.first, self.last))
        step, loss = self.step, None
        running: deque[Any] = deque()
        while True:
            *parameters, loss = step(*head, *parameters, *tail)
            running.append(loss)
            if len(running) > in_flight:
                running.popleft().block_until_ready()
            if (yield None):
                yield float(loss)

    def copying(self) -> Iterator[float | None]:
        """Arrays of the host in and out: case c."""
        head, tail = self.inputs[: self.first], self.inputs[self.last :]
        parameters = self.inputs[self.first : self.last]
        step = self.step
        while True:
            *parameters, loss = jax.device_get(step(*head, *parameters, *tail))
            if (yield None):
                yield float(loss)

    def training(self) -> Iterator[float | None]:
        """The batch from the host, the loss read back: case d. The rate stays on the device."""
        head, tail = self.inputs[: self.first], self.tail()
        parameters = self.on_device(slice(self.first, self.last))
        step = self.step
        while True:
            *parameters, loss = step(*head, *parameters, *tail)
            value = float(loss)
            if (yield value):
                yield value

    def training_late(self) -> Iterator[float | None]:
        """Case e: as d, but what is read is the loss of the step before."""
        head, tail = self.inputs[: self.first], self.tail()
        parameters = self.on_device(slice(self.first, self.last))
        step, before = self.step, None
        while True:
            *parameters, loss = step(*head, *parameters, *tail)
            loss.copy_to_host_async()
            if before is not None:
                float(before)
            before = loss
            if (yield None):
                yield float(loss)

    def tail(self) -> list[Any]:
        """What follows the parameters: scalars on the device, the batch's part on the host."""
        return [array if array.ndim else jax.device_put(array) for array in self.inputs[self.last :]]


def measure(start: Callable[[], Any], warmup: int, steps: int) -> dict[str, Any]:
    """Each step's nanoseconds, the loss of the first step where the loop reads it, and that of one step more."""
    running = start()
    nanoseconds = []
    clock = time.perf_counter_ns
    first = next(running)
    for _ in range(warmup - 1):
        next(running)
    for _ in range(steps):
        before = clock()
        next(running)
        nanoseconds.append(clock() - before)
    next(running)
    return {"ns": nanoseconds, "first": first, "loss": running.send(WANTED)}


def main(path: Path, data: Path, warmup: int, steps: int) -> None:
    loop = Loop(path, np.load(data))
    cases: dict[str, Callable[[], Any]] = {
        "a": partial(loop.resident, 0),
        "b": partial(loop.resident, IN_FLIGHT),
        "d": loop.training,
        "e": loop.training_late,
        "c": loop.copying,
    }
    device = jax.devices()[0]
    facts = {"platform": device.platform, "device_kind": device.device_kind, "jax": jax.__version__}
    measured = {case: measure(start, warmup, steps) for case, start in cases.items()}
    print(json.dumps({"facts": facts, **measured}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
