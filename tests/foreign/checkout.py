"""A checkout of another house: its document lies elsewhere, its C files and graphs are called and shaped otherwise."""

from __future__ import annotations

import hashlib
import shutil
import stat
from pathlib import Path

from pytest_cudaboot.project import suite_root

PARTS = (
    *(
        "artifact.h",
        "cursor.c",
        "failure.h",
        "guard.c",
        "library.h",
        "pjrt_api.h",
        "pjrt_artifact.c",
        "pjrt_client.c",
    ),
    *("pjrt_guard.c", "pjrt_invoke.c", "pjrt_keep.c", "pjrt_move.c", "pjrt_plugin.c", "pjrt_session.c"),
    *("pjrt_settings.c", "pjrt_table.h", "pjrt_values.h", "signature.c", "signature.h"),
)
LINE = "cc -fPIC -O1 -std=gnu11 -shared -Iffi ffi/bridge.c -ldl -o ffi/libpjrt_ffi.so"
PRINTED = LINE.replace("-Iffi ", "-Iffi \\\n    ")
DOCUMENT = f"""\
# Up on our cards

The bridge is one file.

```sh
{PRINTED}
```
"""
AFFINE = """\
module @m {
  func.func @affine_fwd(%x: tensor<6x4xf32>, %w: tensor<4x3xf32>, %b: tensor<3xf32>) -> tensor<6x3xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4x3xf32>) -> tensor<6x3xf32>
    %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<6x3xf32>
    %2 = stablehlo.add %0, %1 : tensor<6x3xf32>
    return %2 : tensor<6x3xf32>
  }
}
"""
STEP = """\
module @m {
  func.func @affine_sgd(%x: tensor<6x4xf32>, %w: tensor<4x3xf32>, %rate: tensor<f32>, %y: tensor<6x3xf32>) -> (tensor<4x3xf32>, tensor<f32>) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4x3xf32>) -> tensor<6x3xf32>
    %1 = stablehlo.subtract %0, %y : tensor<6x3xf32>
    %2 = stablehlo.dot_general %x, %1, contracting_dims = [0] x [0] : (tensor<6x4xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
    %3 = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
    %4 = stablehlo.multiply %3, %2 : tensor<4x3xf32>
    %5 = stablehlo.subtract %w, %4 : tensor<4x3xf32>
    %6 = stablehlo.multiply %1, %1 : tensor<6x3xf32>
    %7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.reduce(%6 init: %7) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x3xf32>, tensor<f32>) -> tensor<f32>
    return %5, %8 : tensor<4x3xf32>, tensor<f32>
  }
}
"""
# Another kind of module, which nobody gives to a shim.
COUNTS = """\
module @m {
  func.func @counts(%n: tensor<2xi32>) -> tensor<2xi32> {
    return %n : tensor<2xi32>
  }
}
"""


def make(root: Path) -> Path:
    """Write the checkout."""
    parts = root / "ffi" / "parts"
    parts.mkdir(parents=True)
    for name in PARTS:
        text = (suite_root() / "fixtures" / "reference" / "ffi" / name).read_text()
        renamed = text.replace('#include "pjrt_', '#include "rt_').replace("LEAN_MLIR_", "BRIDGE_")
        (parts / name.replace("pjrt_", "rt_")).write_text(renamed)
    shutil.copy(Path(__file__).with_name("bridge.c"), root / "ffi")
    for name, text in (("historical/CUDA.md", DOCUMENT), ("renders/affine_fwd.mlir", AFFINE)):
        write(root / name, text)
    write(root / "renders" / "steps" / "affine_sgd.mlir", STEP)
    write(root / "renders" / "counts.mlir", COUNTS)
    return root


def write(path: Path, text: str) -> None:
    """A file in folders that may not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fingerprint(root: Path) -> str:
    """Of every entry its name, kind, mode, time of change and content."""
    digest = hashlib.sha256()
    for path in (root, *sorted(root.rglob("*"))):
        found = path.lstat()
        told = (str(path.relative_to(root)), found.st_mode, found.st_mtime_ns)
        digest.update(repr(told).encode())
        if stat.S_ISREG(found.st_mode):
            digest.update(path.read_bytes())
        elif stat.S_ISLNK(found.st_mode):
            digest.update(bytes(path.readlink()))
    return digest.hexdigest()
