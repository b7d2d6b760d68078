"""A child process that drives a shim through its ABI: operations come in as JSON, answers go out as JSON.

It is started afresh for each environment, since a shim reads its environment once a process. It imports nothing
but the standard library, so that it starts fast.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import sys
import tempfile
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]


# From here on a CPU plugin reads an array of the caller's where it lies.
ALIGNMENT = 64


def aligned(values: Sequence[float]) -> Any:
    """A C array of floats that starts at a multiple of 64 bytes."""
    kind = ctypes.c_float * len(values)
    room = bytearray(ctypes.sizeof(kind) + ALIGNMENT)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % ALIGNMENT
    made = kind.from_buffer(room, start)
    made[:] = list(values)
    return made


def pointers(buffers: list[Any]) -> Any:
    """A C array of the addresses of C arrays; None becomes NULL."""
    addresses = [None if b is None else ctypes.addressof(b) for b in buffers]
    return (ctypes.c_void_p * max(1, len(buffers)))(*addresses)


def unset(count: int) -> Any:
    return (ctypes.c_float * count)(*[float("nan")] * count)


def address(buffer: array[Any]) -> Any:
    return ctypes.c_void_p(buffer.buffer_info()[0])


def encoded(buffer: array[float]) -> str:
    return base64.b64encode(buffer).decode()


def _given(op: Json, data: list[Any]) -> list[Any]:
    """The arguments of a verb that say what goes in."""
    inputs, lie = op["inputs"], op.get("lie", {})
    dims = [d for i in inputs for d in i["dims"]]
    ranks = lie.get("ranks", [len(i["dims"]) for i in inputs])
    return [
        lie.get("n_inputs", len(inputs)),
        (ctypes.c_int32 * max(1, len(ranks)))(*ranks),
        (ctypes.c_int64 * max(1, len(dims)))(*dims),
        None if lie.get("no_inputs") else pointers(data),
    ]


def _wanted(op: Json, outputs: list[Any]) -> list[Any]:
    """Those that say what comes out, and where to."""
    lie = op.get("lie", {})
    totals = lie.get("totals", op["totals"])
    shown = [None if i in op.get("skip", []) else output for i, output in enumerate(outputs)]
    return [
        lie.get("n_outputs", len(outputs)),
        (ctypes.c_int64 * max(1, len(totals)))(*totals),
        None if lie.get("no_outputs") else pointers(shown),
    ]


class Driver:
    """The sessions of one child, by number."""

    def __init__(self, shim: str) -> None:
        self.library = ctypes.CDLL(shim)
        self.library.iree_ffi_session_create.restype = ctypes.c_void_p
        self.sessions: list[int | None] = []
        self.last: list[Any] = []

    def create(self, op: Json) -> Json:
        path = op["path"]
        handle = self.library.iree_ffi_session_create(None if path is None else os.fsencode(path))
        self.sessions.append(handle)
        return {"made": handle is not None}

    def release(self, op: Json) -> Json:
        self.library.iree_ffi_session_release(ctypes.c_void_p(self.sessions[op["session"]]))
        self.sessions[op["session"]] = None
        return {}

    def invoke(self, op: Json) -> Json:
        """`inputs` are {dims, data} (data null: NULL); what is in `lie` replaces the true argument.

        An input with `last` instead of `data` is that output of the invocation before. With `raw` instead, it is
        bytes in base64, as the outputs are with `raw` in the operation: numbers in JSON take seconds if they are many.
        `skip` are outputs that go as NULL. With `scribble` the inputs are spoilt when the call is back.
        """
        data, outputs = [self._data(i) for i in op["inputs"]], [unset(total) for total in op["totals"]]
        code = self._call(op, _given(op, data), _wanted(op, outputs))
        said = encoded if op.get("raw") else list
        answer: Json = {"code": code, "outputs": [said(o) for o in outputs]}
        if op.get("keep"):
            answer["inputs"] = [list(d) for d in data if d is not None]
        if op.get("scribble"):
            for values in data:
                if values is not None:
                    values[:] = [float("nan")] * len(values)
        self.last = outputs
        return answer

    def _data(self, one: Json) -> Any:
        if "raw" in one:
            return aligned(array("f", base64.b64decode(one["raw"])))
        data = self.last[one["last"]] if "last" in one else one["data"]
        return None if data is None else aligned(data)

    def _call(self, op: Json, middle: list[Any], tail: list[Any]) -> int:
        """The verb that the operation means: by its `range`, its `roles`, its `replicas`, or the plain one."""
        fn = op.get("lie", {}).get("fn", op["fn"])
        head = [self._handle(op), None if fn is None else fn.encode()]
        mask = None if op.get("mask") is None else bytes(op["mask"])
        replicas = op.get("replicas", 1)
        code: int
        if "range" in op:
            generation = ctypes.c_longlong(op.get("generation", 0))
            verb = self.library.pjrt_ffi_invoke_f32_resident_v2
            code = verb(*head, replicas, *op["range"], generation, *middle, mask, *tail)
        elif "roles" in op:
            roles = None if op["roles"] is None else (ctypes.c_int32 * len(op["roles"]))(*op["roles"])
            how = (op.get("in_flight", 0), op.get("late", 0))
            code = self.library.pjrt_ffi_step_f32_v1(*head, replicas, *middle, mask, roles, *tail, *how)
        elif op.get("replicas") is None:
            code = self.library.iree_ffi_invoke_f32(*head, *middle, *tail)
        else:
            code = self.library.pjrt_ffi_invoke_f32_dp(*head, replicas, *middle, mask, *tail)
        return code

    def _handle(self, op: Json) -> Any:
        return ctypes.c_void_p(self.sessions[op["session"]] if op.get("session") is not None else None)

    def flush(self, op: Json) -> Json:
        outputs = [unset(total) for total in op["totals"]]
        out = pointers(outputs) if outputs else None
        code = self.library.pjrt_ffi_flush_v1(self._handle(op), len(outputs), out)
        return {"code": code, "outputs": [list(o) for o in outputs]}

    def read(self, op: Json) -> Json:
        floats = unset(op["floats"])
        target = None if op.get("nowhere") else floats
        count = ctypes.c_int64(op["floats"])
        code = self.library.pjrt_ffi_resident_read(self._handle(op), count, target)
        return {"code": code, "floats": list(floats)}

    def available(self, op: Json) -> Json:
        return {"asked": self.library.pjrt_ffi_resident_available()}

    def loop(self, op: Json) -> Json:
        """Repeats a step whose kept inputs stay on the device; the resident pages after each tenth."""
        pages: list[int] = []
        for i in range(op["times"]):
            done = self.invoke(op["first"] if i == 0 else op["step"])
            if done["code"] != 0:
                return {"code": done["code"], "pages": pages}
            if (i + 1) % (op["times"] // 10) == 0:
                pages.append(int(Path("/proc/self/statm").read_text().split()[1]))
        return {"code": 0, "pages": pages}

    def train(self, op: Json) -> Json:
        """A train verb: `parameters` are {dims, data}, `extra` the integers that follow the batch."""
        parameters, x = op["parameters"], op["x"]
        sizes = op.get("sizes", [len(p["data"]) for p in parameters])
        dims = [d for p in parameters for d in p["dims"]]
        packed = array("f", [v for p in parameters for v in p["data"]])
        pixels, y = array("f", x["data"]), array(op["y_type"], op["y"])
        made, loss = array("f", [float("nan")] * len(packed)), array("f", [float("nan")])
        bn = array("f", [float("nan")] * 2 * sum(op["bn"]))
        rates = [ctypes.c_float(op["lr"]), *([ctypes.c_float(op["t"])] if "t" in op else [])]
        tail = [len(op["bn"]), (ctypes.c_int64 * (len(op["bn"]) + 1))(*op["bn"]), address(bn)]
        code = getattr(self.library, f"iree_ffi_train_step_{op['name']}")(
            *(self._handle(op), op["fn"].encode(), op["batch"], *op["extra"], len(parameters)),
            (ctypes.c_int32 * len(parameters))(*[len(p["dims"]) for p in parameters]),
            *((ctypes.c_int64 * len(dims))(*dims), (ctypes.c_int64 * len(sizes))(*sizes), address(packed)),
            *(len(x["dims"]), (ctypes.c_int64 * len(x["dims"]))(*x["dims"]), address(pixels), address(y)),
            *(*rates, address(made), address(loss), *(tail if "t" in op else [])),
        )
        return {"code": code, "packed": list(made), "loss": loss[0], "bn": list(bn)}

    def describe(self, op: Json) -> Json:
        room = op.get("room", 1 << 16)
        out = ctypes.create_string_buffer(max(1, room))
        code = self.library.pjrt_ffi_describe(out, room)
        return {"code": code, "facts": json.loads(out.value) if code == 0 else None}

    def memory(self, op: Json) -> Json:
        out = ctypes.create_string_buffer(op.get("room", 1 << 10))
        handle = self.sessions[op["session"]] if op.get("session") is not None else None
        code = self.library.pjrt_ffi_session_memory(ctypes.c_void_p(handle), out, len(out))
        return {"code": code, "facts": json.loads(out.value) if code == 0 else None}

    def verb(self, op: Json) -> Json:
        function = getattr(self.library, op["name"])
        return {"code": function(*[None] * 4)}

    def counts(self, op: Json) -> Json:
        """What the tiny plugin says is still held, how many copies came late, and how often memory was read in place."""
        plugin = ctypes.CDLL(op["plugin"])
        return {
            "held": plugin.tiny_handed_out(),
            "late": plugin.tiny_late_copies(),
            "in_place": plugin.tiny_in_place(),
        }

    def held(self, op: Json) -> Json:
        """What the runtime in name only says is still held."""
        return {"held": self.library.fake_iree_held()}

    def churn(self, op: Json) -> Json:
        """Opens and closes sessions; answers with the resident pages after each tenth of them."""
        pages = []
        for i in range(1, op["times"] + 1):
            handle = self.library.iree_ffi_session_create(os.fsencode(op["path"]))
            self.library.iree_ffi_session_release(ctypes.c_void_p(handle))
            if i % (op["times"] // 10) == 0:
                pages.append(int(Path("/proc/self/statm").read_text().split()[1]))
        return {"pages": pages}


def answer(driver: Driver, op: Json) -> Json:
    """Runs one operation, with what was written on stderr meanwhile as `said`."""
    with tempfile.TemporaryFile() as words:
        saved = os.dup(2)
        os.dup2(words.fileno(), 2)
        try:
            result: Json = getattr(driver, op["op"])(op)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        words.seek(0)
        result["said"] = words.read().decode(errors="replace")
    return result


def main() -> None:
    driver = Driver(sys.argv[1])
    json.dump([answer(driver, op) for op in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
