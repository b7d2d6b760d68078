"""A child process that drives a shim through its ABI: operations come in as JSON, answers go out as JSON.

It is started afresh for each environment, since a shim reads its environment once a process. It imports nothing
but the standard library, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from array import array
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def pointers(buffers: list[array[float] | None]) -> Any:
    """A C array of the buffers' addresses; None becomes NULL."""
    addresses = [None if b is None else b.buffer_info()[0] for b in buffers]
    return (ctypes.c_void_p * max(1, len(buffers)))(*addresses)


class Driver:
    """The sessions of one child, by number."""

    def __init__(self, shim: str) -> None:
        self.library = ctypes.CDLL(shim)
        self.library.iree_ffi_session_create.restype = ctypes.c_void_p
        self.sessions: list[int | None] = []

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
        """`inputs` are {dims, data} (data null: NULL); what is in `lie` replaces the true argument."""
        inputs = op["inputs"]
        lie = op.get("lie", {})
        dims = [d for i in inputs for d in i["dims"]]
        data = [None if i["data"] is None else array("f", i["data"]) for i in inputs]
        outputs = [array("f", [float("nan")] * total) for total in op["totals"]]
        handle = self.sessions[op["session"]] if op.get("session") is not None else None
        fn = lie.get("fn", op["fn"])
        totals = lie.get("totals", op["totals"])
        ranks = lie.get("ranks", [len(i["dims"]) for i in inputs])
        head = [ctypes.c_void_p(handle), None if fn is None else fn.encode()]
        middle = [
            lie.get("n_inputs", len(inputs)),
            (ctypes.c_int32 * max(1, len(ranks)))(*ranks),
            (ctypes.c_int64 * max(1, len(dims)))(*dims),
            None if lie.get("no_inputs") else pointers(data),
        ]
        tail = [
            lie.get("n_outputs", len(outputs)),
            (ctypes.c_int64 * max(1, len(totals)))(*totals),
            None if lie.get("no_outputs") else pointers(list(outputs)),
        ]
        if op.get("replicas") is None:
            code = self.library.iree_ffi_invoke_f32(*head, *middle, *tail)
        else:
            mask = None if op.get("mask") is None else bytes(op["mask"])
            code = self.library.pjrt_ffi_invoke_f32_dp(*head, op["replicas"], *middle, mask, *tail)
        answer: Json = {"code": code, "outputs": [list(o) for o in outputs]}
        if op.get("keep"):
            answer["inputs"] = [list(d) for d in data if d is not None]
        return answer

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
        """What the tiny plugin says is still held, and how many copies came late."""
        plugin = ctypes.CDLL(op["plugin"])
        return {"held": plugin.tiny_handed_out(), "late": plugin.tiny_late_copies()}

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
