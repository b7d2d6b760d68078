"""A lowerer that runs PTX through the driver's own interface, so that a card can be broken on purpose.

An artifact is a file of PTX whose entry has the file's name, takes one address, and may write one float there. It is
imported by the device process; `.launch` returns before the kernel has ended, as a forgotten one would.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.base import Array, LowererConfig, Shape
from pytest_cudaboot.model import Json
from pytest_cudaboot.probes import maps
from pytest_cudaboot.rules.signature import Signature, TensorType

EXECUTE = 3


class Poison:
    """Holds the primary context of the first card that it sees, as XLA and IREE do."""

    def __init__(self, config: LowererConfig) -> None:
        self.name = config.name
        self.cuda: Any = ctypes.CDLL("libcuda.so.1")
        self.device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.do("cuInit", 0)
        self.do("cuDeviceGet", ctypes.byref(self.device), 0)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.do("cuCtxPushCurrent_v2", self.context)

    def do(self, function: str, *arguments: Any) -> None:
        """One call of the driver."""
        if status := getattr(self.cuda, function)(*arguments):
            raise ShimError(f"{function} failed with {status}", EXECUTE)

    def open_session(self, path: Path, source: Path | None = None) -> Kernel:
        return Kernel(self, path)

    def facts(self) -> Json:
        mapped = maps.by_name(maps.shared_objects())
        return {"name": self.name, "describe": {"platform": "cuda"}, "mapped": mapped}

    def close(self) -> None:
        """The context goes with the process."""


class Kernel:
    """One entry, loaded."""

    def __init__(self, lowerer: Poison, path: Path) -> None:
        self.lowerer = lowerer
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        lowerer.do("cuModuleLoadData", ctypes.byref(module), path.read_bytes())
        lowerer.do("cuModuleGetFunction", ctypes.byref(self.function), module, path.stem.encode())
        self.signature = Signature(path.stem, (), (TensorType((1,), "f32"),))

    def invoke(
        self, function: str, arrays: Sequence[Array], outputs: Sequence[Shape] | None = None
    ) -> list[Array]:
        """Run it and wait for it."""
        address = ctypes.c_uint64(self.launch())
        made = np.zeros(1, np.float32)
        self.lowerer.do("cuMemcpyDtoH_v2", made.ctypes.data_as(ctypes.c_void_p), address, made.nbytes)
        return [made]

    def launch(self) -> int:
        """Start it and do not wait; the address that it was given."""
        out = ctypes.c_uint64()
        self.lowerer.do("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(4))
        words = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(out), ctypes.c_void_p))
        self.lowerer.do("cuLaunchKernel", self.function, 1, 1, 1, 1, 1, 1, 0, None, words, None)
        return out.value

    def close(self) -> None:
        """Nothing: a broken context could not be told, and a sound one goes with the process."""
