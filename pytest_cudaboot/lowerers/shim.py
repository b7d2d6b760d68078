"""A shim behind its C ABI: declare, bind, call. It builds nothing and knows no lowerer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import cffi
import numpy as np

from pytest_cudaboot.errors import ShimError, SignatureError, ToolMissingError, UnsupportedError
from pytest_cudaboot.rules.shim_symbols import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from pytest_cudaboot.lowerers.base import Array, Shape
    from pytest_cudaboot.model import Json
    from pytest_cudaboot.rules.signature import Signature

UNSUPPORTED = 99
CODES = {1: "guard", 2: "host to device", 3: "execute", 4: "device to host", UNSUPPORTED: "not implemented"}
DESCRIPTION_BYTES = 1 << 16

_STEP_HEAD = "iree_ffi_session_t *session, const char *fn_name, int batch"
_PARAMETERS = (
    "int n_params, const int32_t *ranks, const int64_t *dims, const int64_t *sizes, const float *packed"
)
_X = "int x_rank, const int64_t *x_dims, const float *x"
_ADAM_TAIL = (
    "float lr, float t, float *packed_out, float *loss, int n_bn, const int64_t *bn_sizes, float *bn_out"
)
_CALL = "int n_inputs, const int32_t *ranks, const int64_t *dims, const float *const *data"
_RESULTS = "int n_outputs, const int64_t *totals, float *const *out"

PROTOTYPES = {
    "iree_ffi_session_create": "iree_ffi_session_t *{}(const char *path)",
    "iree_ffi_session_release": "void {}(iree_ffi_session_t *session)",
    "iree_ffi_invoke_f32": f"int {{}}(iree_ffi_session_t *session, const char *fn_name, {_CALL}, {_RESULTS})",
    "iree_ffi_train_step_mlp": (
        f"int {{}}({_STEP_HEAD}, const float *w0, const float *b0, const float *w1, const float *b1, "
        "const float *w2, const float *b2, const float *x, const int32_t *y, float lr, float *w0_out, "
        "float *b0_out, float *w1_out, float *b1_out, float *w2_out, float *b2_out, float *loss)"
    ),
    "iree_ffi_train_step_generic": (
        f"int {{}}({_STEP_HEAD}, {_PARAMETERS}, {_X}, const int32_t *y, float lr, float *packed_out, float *loss)"
    ),
    "iree_ffi_train_step_adam": f"int {{}}({_STEP_HEAD}, {_PARAMETERS}, {_X}, const int32_t *y, {_ADAM_TAIL})",
    "iree_ffi_train_step_adam_seg": (
        f"int {{}}({_STEP_HEAD}, int h, int w, {_PARAMETERS}, {_X}, const int32_t *y, {_ADAM_TAIL})"
    ),
    "iree_ffi_train_step_adam_softlabel": (
        f"int {{}}({_STEP_HEAD}, int n_classes, {_PARAMETERS}, {_X}, const float *y, {_ADAM_TAIL})"
    ),
    "iree_ffi_train_step_adam_ddpm": (
        f"int {{}}({_STEP_HEAD}, int c, int h, int w, {_PARAMETERS}, {_X}, const float *y, {_ADAM_TAIL})"
    ),
    "iree_ffi_train_step_adam_yolov1": (
        f"int {{}}({_STEP_HEAD}, int grid_h, int grid_w, int per_cell, {_PARAMETERS}, {_X}, const float *y, "
        f"const float *mask, {_ADAM_TAIL})"
    ),
}
EXTRAS = {
    "pjrt_ffi_marker": "void {}(void)",
    "pjrt_ffi_resident_available": "int {}(void)",
    "pjrt_ffi_invoke_f32_dp": (
        f"int {{}}(iree_ffi_session_t *session, const char *fn, int n_replicas, {_CALL}, "
        f"const unsigned char *shard_mask, {_RESULTS})"
    ),
    "pjrt_ffi_invoke_f32_resident_v2": (
        "int {}(iree_ffi_session_t *session, const char *fn, int n_replicas, int res_in, int res_out, "
        f"int n_resident, long long res_gen, {_CALL}, const unsigned char *shard_mask, {_RESULTS})"
    ),
    "pjrt_ffi_resident_read": "int {}(iree_ffi_session_t *session, int64_t n_floats, float *dst)",
    "pjrt_ffi_step_f32_v1": (
        f"int {{}}(iree_ffi_session_t *session, const char *fn, int n_replicas, {_CALL}, "
        f"const unsigned char *shard_mask, const int32_t *roles, {_RESULTS}, int in_flight, int late)"
    ),
    "pjrt_ffi_flush_v1": "int {}(iree_ffi_session_t *session, int n_outputs, float *const *out)",
    "pjrt_ffi_describe": "int {}(char *out, size_t n)",
    "pjrt_ffi_session_memory": "int {}(iree_ffi_session_t *session, char *out, size_t n)",
}

# The stubs know neither the loader flags nor arrays as buffers.
FFI: Any = cffi.FFI()
FFI.cdef("typedef struct iree_ffi_session iree_ffi_session_t;")
FFI.cdef("".join(f"{prototype.format(name)};\n" for name, prototype in (PROTOTYPES | EXTRAS).items()))


class Shim:
    """A bound shared library. `extras` are the symbols beyond the ten that it really has."""

    def __init__(self, path: Path, lib: Any) -> None:
        self.path = path
        self.lib = lib
        self.extras = frozenset(name for name in EXTRAS if hasattr(lib, name))

    def describe(self) -> Json:
        """What the shim tells about its client, which it makes for that; empty if it has no word for it."""
        if "pjrt_ffi_describe" not in self.extras:
            return {}
        text = FFI.new("char[]", DESCRIPTION_BYTES)
        check("pjrt_ffi_describe", self.lib.pjrt_ffi_describe(text, DESCRIPTION_BYTES))
        facts: Json = json.loads(FFI.string(text))
        return facts


def bind(path: Path) -> Shim:
    """Load a shim and check that it is one.

    :raises ToolMissingError: there is no such file.
    :raises ShimError: the loader refuses it, or it lacks a required symbol: a stale build, not an absence.
    """
    # With a slash in its name the loader takes this file and searches nowhere.
    absolute = path.absolute()
    if not absolute.is_file():
        raise ToolMissingError(f"no shim {str(absolute)!r}; build it with the document's gcc line")
    try:
        lib: Any = FFI.dlopen(str(absolute), FFI.RTLD_NOW | FFI.RTLD_LOCAL)
    except OSError as error:
        raise ShimError(f"{absolute} can not be loaded: {error}") from None
    if missing := [name for name in REQUIRED if not hasattr(lib, name)]:
        raise ShimError(
            f"{absolute} is not a usable shim: it lacks {', '.join(missing)}; rebuild it from its sources"
        )
    return Shim(absolute, lib)


class ShimSession:
    """One artifact behind any shim's ten symbols.

    After `close` the handle is NULL, and calls still go to the shim: to refuse that is its duty.
    """

    def __init__(self, shim: Shim, handle: Any, signature: Signature) -> None:
        self._shim = shim
        self._handle = handle
        self._signature = signature

    @property
    def signature(self) -> Signature:
        return self._signature

    def invoke(
        self, function: str, arrays: Sequence[Array], outputs: Sequence[Shape] | None = None
    ) -> list[Array]:
        sent, made = Inputs(arrays), Outputs(self.shapes(outputs))
        code = self._shim.lib.iree_ffi_invoke_f32(self._handle, function.encode(), *sent.words, *made.words)
        check(f"iree_ffi_invoke_f32 of {function!r}", code)
        return made.arrays

    def train_generic(
        self, function: str, parameters: Sequence[Array], x: Array, y: Sequence[int], rate: float
    ) -> list[Array]:
        """One step by the ABI's own verb.

        :param y: a label for each row of `x`.
        :returns: the new parameters, and the loss as a scalar behind them.
        :raises UnsupportedError: the shim does not have the verb.
        """
        given, packed = Inputs(parameters), np.concatenate([np.ravel(array) for array in parameters])
        made, loss = np.full(packed.size, np.nan, np.float32), np.full(1, np.nan, np.float32)
        count, ranks, dims, _ = given.words
        sizes = FFI.new("int64_t[]", [array.size for array in parameters])
        buffers = [FFI.from_buffer("float[]", array, require_writable=True) for array in (packed, made, loss)]
        code = self._shim.lib.iree_ffi_train_step_generic(
            *(self._handle, function.encode(), len(y), count, ranks, dims, sizes, buffers[0]),
            *(x.ndim, FFI.new("int64_t[]", x.shape), FFI.from_buffer("float[]", np.ravel(x))),
            *(FFI.new("int32_t[]", list(y)), rate, buffers[1], buffers[2]),
        )
        check(f"iree_ffi_train_step_generic of {function!r}", code)
        ends = np.cumsum([array.size for array in parameters])[:-1]
        parts = np.split(made, ends)
        shaped = [part.reshape(old.shape) for part, old in zip(parts, parameters, strict=True)]
        return [*shaped, loss.reshape(())]

    def close(self) -> None:
        handle, self._handle = self._handle, FFI.NULL
        self._shim.lib.iree_ffi_session_release(handle)

    def shapes(self, outputs: Sequence[Shape] | None) -> Sequence[Shape]:
        return [output.shape for output in self._signature.outputs] if outputs is None else outputs


def require_float32(index: int, array: Array) -> None:
    """Refuse an input that the ABI has no word for, whatever would carry it.

    :raises SignatureError: it is of another element type.
    """
    if array.dtype != np.float32:
        raise SignatureError(f"input {index} is {array.dtype} {array.shape}; the ABI carries float32 only")


class Inputs:
    """Arrays as the ABI takes them; `words` is `n, ranks, dims, data`, valid as long as this object lives.

    :param absent: indexes of arrays that go as NULL: the device has them.
    """

    def __init__(self, arrays: Sequence[Array], absent: Container[int] = ()) -> None:
        for index, array in enumerate(arrays):
            require_float32(index, array)
        # Row by row, whatever lies in memory: a view may be strided or transposed.
        self._buffers = [FFI.from_buffer("float[]", np.ravel(array)) for array in arrays]
        ranks = FFI.new("int32_t[]", [array.ndim for array in arrays])
        dims = FFI.new("int64_t[]", [dim for array in arrays for dim in array.shape])
        data = [FFI.NULL if index in absent else buffer for index, buffer in enumerate(self._buffers)]
        self.words = (len(arrays), ranks, dims, FFI.new("float *[]", data))


class Outputs:
    """Room for results; `words` is `n, totals, out`, valid as long as this object lives.

    It starts as NaN, so that what a shim forgot to write can not pass for a result.

    :param absent: indexes of results that are not to be written; their arrays stay NaN.
    """

    def __init__(self, shapes: Sequence[Shape], absent: Container[int] = ()) -> None:
        self.arrays: list[Array] = [np.full(shape, np.nan, np.float32) for shape in shapes]
        flat = [array.reshape(-1) for array in self.arrays]
        self._buffers = [FFI.from_buffer("float[]", array, require_writable=True) for array in flat]
        totals = FFI.new("int64_t[]", [array.size for array in self.arrays])
        out = [FFI.NULL if index in absent else buffer for index, buffer in enumerate(self._buffers)]
        self.words = (len(self.arrays), totals, FFI.new("float *[]", out))


def check(what: str, code: int) -> None:
    """Turn a return code into an error. The shim's own words are on stderr."""
    if code == 0:
        return
    message = f"{what} returned {code} ({CODES.get(code, 'not a code of the ABI')})"
    raise UnsupportedError(message, code) if code == UNSUPPORTED else ShimError(message, code)
