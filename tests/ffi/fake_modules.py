"""The IREE runtime in name only, and modules as it reads them. It holds no test."""

from __future__ import annotations

from pathlib import Path

from tests.ffi.helpers import ROOT

FAKE = ROOT / "tests/ffi/fake_iree"
LINE = ("-DIREE_ALLOCATOR_SYSTEM_CTL=x", "-isystem", str(FAKE), "-D_GNU_SOURCE", "-Wl,-z,defs")
PAIR = "sync func @pair(%input0: tensor<2x3xf32>, %input1: tensor<f32>) -> (%output0: tensor<2x3xf32>, %output1: tensor<f32>)"


def vmfb(path: Path, *functions: str, module: str = "m") -> Path:
    """A module as the runtime in name only reads it."""
    text = "\n".join([module, *functions]).encode()
    path.write_bytes(b"PK\3\4" + bytes(26) + text + b"PK\5\6" + bytes(18))
    return path
