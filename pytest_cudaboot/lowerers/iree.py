"""IREE behind the seam: compiled modules through iree-base-runtime, in the process that calls. It compiles nothing.

Where a `libiree_ffi.so` is configured, the module goes through that shim instead.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_cudaboot.errors import ShimError, SignatureError, ToolMissingError
from pytest_cudaboot.lowerers.shim import FFI, ShimSession, bind, require_float32
from pytest_cudaboot.probes import maps
from pytest_cudaboot.rules.iree_target import DEVICES
from pytest_cudaboot.rules.signature import Signature, read_declaration, read_signature, require_agreement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_cudaboot.lowerers.base import Array, LowererConfig, Session, Shape
    from pytest_cudaboot.model import Json

GUARD, UPLOAD, EXECUTE, DOWNLOAD = 1, 2, 3, 4
DECLARATION = "iree.abi.declaration"
# What the bindings raise for a status that is not OK, and nothing else.
REFUSALS = (RuntimeError, ValueError)


class IreeLowerer:
    """One device of IREE's runtime, or the shim over it."""

    def __init__(self, config: LowererConfig) -> None:
        self._config = config
        device = config.environment.get("IREE_DEVICE", DEVICES[config.platform])
        self._engine = Runtime(device) if config.shim is None else ShimEngine(Path(config.shim))

    def open_session(self, path: Path, source: Path | None = None) -> Session:
        return self._engine.open_session(path, source)

    def facts(self) -> Json:
        return {
            "name": self._config.name,
            "platform": self._config.platform,
            "shim": self._config.shim,
            "extras": [],
            "describe": self._engine.describe(),
            "mapped": maps.by_name(maps.shared_objects()),
        }

    def close(self) -> None:
        """Nothing is left to release: a device goes with its process."""


class ShimEngine:
    """A shim of the project's own. It reads `IREE_DEVICE` from the process's environment itself."""

    def __init__(self, path: Path) -> None:
        self._shim = bind(path)

    def describe(self) -> Json:
        return self._shim.describe()

    def open_session(self, path: Path, source: Path | None) -> Session:
        if source is None:
            raise SignatureError(
                f"{path}: a shim does not tell a module's signature; name the text it was made of"
            )
        signature = read_signature(source.read_text(errors="replace"))
        handle = self._shim.lib.iree_ffi_session_create(str(path).encode())
        if handle == FFI.NULL:
            raise ShimError(f"the IREE shim made no session of {str(path)!r}")
        return ShimSession(self._shim, handle, signature)


class Runtime:
    """iree-base-runtime with one device. `cuda` takes the first card that this process sees."""

    def __init__(self, driver: str) -> None:
        self.api = _import_runtime()
        self.name = driver
        try:
            self._driver = self.api.get_driver(driver)
            self.device = self._driver.create_default_device()
        except REFUSALS as error:
            raise ShimError(f"[iree] no device {driver!r}: {error}") from error
        self.instance = self.api.VmInstance()
        self.hal = self.api.create_hal_module(self.instance, self.device)

    def describe(self) -> Json:
        """What really runs, in the driver's words: on cards it says their UUIDs."""
        devices = [
            {"name": str(device["name"]), "uuid": str(device["path"]) or None}
            for device in self._driver.query_available_devices()
        ]
        version = importlib.import_module("iree._runtime_libs.version")
        return {
            "platform": "cuda" if self.name == "cuda" else "cpu",
            "driver": self.name,
            "devices": devices,
            "version": version.VERSION,
            "commit": version.REVISIONS["IREE"],
            "path": str(Path(str(version.__file__)).parent),
        }

    def open_session(self, path: Path, source: Path | None) -> RuntimeSession:
        try:
            module = self.api.VmModule.copy_buffer(self.instance, path.read_bytes())
            context = self.api.VmContext(self.instance, [self.hal, module])
        except OSError as error:
            raise ShimError(f"[iree] {str(path)!r} can not be read: {error.strerror}", GUARD) from error
        except REFUSALS as error:
            raise ShimError(f"[iree] no session of {str(path)!r}: {_short(error)}", GUARD) from error
        name, declared = _only_function(module, path)
        if source is not None:
            require_agreement(read_signature(source.read_text(errors="replace")), declared)
        return RuntimeSession(self, context, module.lookup_function(name), declared)


class RuntimeSession:
    """One module, loaded. What does not fit it is refused by IREE, and what IREE lets through by us."""

    def __init__(self, runtime: Runtime, context: Any, function: Any, signature: Signature) -> None:
        self._runtime, self._context, self._function = runtime, context, function
        self._signature = signature

    @property
    def signature(self) -> Signature:
        return self._signature

    def invoke(
        self, function: str, arrays: Sequence[Array], outputs: Sequence[Shape] | None = None
    ) -> list[Array]:
        self._guard(function, outputs)
        api = self._runtime.api
        sent = api.VmVariantList(len(arrays))
        for index, array in enumerate(arrays):
            sent.push_ref(self._upload(index, array))
        returned = api.VmVariantList(len(self._signature.outputs))
        try:
            self._context.invoke(self._function, sent, returned)
        except REFUSALS as error:
            code = GUARD if "INVALID_ARGUMENT" in str(error) else EXECUTE
            raise ShimError(f"[iree] @{self._signature.entry}: {_short(error)}", code) from error
        shapes = [output.shape for output in self._signature.outputs] if outputs is None else outputs
        views = [returned.get_as_object(index, api.HalBufferView) for index in range(len(returned))]
        return [self._download(view).reshape(tuple(shape)) for view, shape in zip(views, shapes, strict=True)]

    def close(self) -> None:
        """Let go of module and context; later calls are refused."""
        self._context = self._function = None

    def _guard(self, function: str, outputs: Sequence[Shape] | None) -> None:
        entry = self._signature.entry
        if self._context is None:
            raise ShimError("[iree] the session is closed", GUARD)
        if function.rpartition(".")[2] != entry:
            raise ShimError(f"[iree] the session holds @{entry}, the caller asks for {function}", GUARD)
        _guard_elements(self._signature)
        if outputs is not None:
            _guard_room(self._signature, outputs)

    def _upload(self, index: int, array: Array) -> Any:
        require_float32(index, array)
        api, device = self._runtime.api, self._runtime.device
        try:
            return device.allocator.allocate_buffer_copy(
                memory_type=api.MemoryType.DEVICE_LOCAL,
                allowed_usage=api.BufferUsage.DEFAULT,
                device=device,
                buffer=np.asarray(array, order="C"),
                element_type=api.HalElementType.FLOAT_32,
            )
        except REFUSALS as error:
            raise ShimError(
                f"[iree] input {index} did not reach the device: {_short(error)}", UPLOAD
            ) from error

    def _download(self, view: Any) -> Array:
        try:
            host = self._runtime.api.DeviceArray(self._runtime.device, view).to_host()
        except REFUSALS as error:
            raise ShimError(f"[iree] an output did not reach the host: {_short(error)}", DOWNLOAD) from error
        # What was mapped goes with the view.
        return np.array(host, np.float32)


def _guard_elements(signature: Signature) -> None:
    """A graph that hands an input through asserts nothing of it."""
    for kind, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for index, tensor in enumerate(tensors):
            if tensor.dtype != "f32":
                raise ShimError(
                    f"[iree] {kind} {index} of @{signature.entry}: the module wants {tensor}, the ABI carries float32",
                    GUARD,
                )


def _guard_room(signature: Signature, outputs: Sequence[Shape]) -> None:
    made = signature.outputs
    if len(outputs) != len(made):
        raise ShimError(
            f"[iree] @{signature.entry} returns {len(made)} outputs, the caller supplied {len(outputs)} destinations",
            GUARD,
        )
    for index, (tensor, shape) in enumerate(zip(made, outputs, strict=True)):
        have, room = math.prod(tensor.shape), math.prod(shape)
        if have != room:
            raise ShimError(
                f"[iree] output {index} size mismatch: graph {4 * have} bytes ({tensor}), caller {4 * room}",
                DOWNLOAD,
            )


def _only_function(module: Any, path: Path) -> tuple[str, Signature]:
    """The exported function that declares a signature; an artifact has one."""
    reflected = {name: module.lookup_function(name).reflection for name in module.function_names}
    declared = {name: facts[DECLARATION] for name, facts in reflected.items() if DECLARATION in facts}
    if len(declared) != 1:
        raise ShimError(
            f"[iree] {str(path)!r} declares {len(declared)} functions ({', '.join(declared)}); an artifact has one"
        )
    (name, text), *_ = declared.items()
    return name, read_declaration(text)


def _import_runtime() -> Any:
    try:
        return importlib.import_module("iree.runtime")
    except ImportError as error:
        raise ToolMissingError(f"no IREE runtime: {error}; `pip install iree-base-runtime`") from error


def _short(error: Exception) -> str:
    """IREE's words without the trace of its own calls."""
    return str(error).partition("; while ")[0].strip()
