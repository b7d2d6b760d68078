"""What the native code's tests share: running compilers and children, and the words of drive.py."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
BUILD_SHIM = "gcc -fPIC -O2 -shared ffi/pjrt_ffi.c -ldl -o ffi/libpjrt_ffi.so"
BUILD_TRAINER = "gcc -O2 ffi/trainer.c -ldl -lm -o trainer"

PLUGINS = {
    "xla_cpu_pjrt": ("xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "pip install xla-cpu-pjrt"),
    "lammps": (
        "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
        "pip install --no-deps lammps-jax-pjrt-cpu",
    ),
}


def site_file(relative: str, cure: str) -> Path:
    """A file of an installed package; its absence is a failure, never a skip."""
    path = Path(sysconfig.get_path("platlib")) / relative
    if not path.is_file():
        pytest.fail(f"{path} is missing: {cure}")
    return path


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment without anything that a shim reads, but for `settings`."""
    ours = ("PJRT_", "LEAN_MLIR_", "CUDABOOT_", "IREE_", "XLA_", "TINY_", "LD_LIBRARY_PATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | dict(settings)


def run(
    *argv: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end in a clean environment with `env` added; the caller looks at its status."""
    return subprocess.run(
        [str(a) for a in argv],
        cwd=cwd,
        env=clean_environment(env or {}),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def build(*argv: str | Path, cwd: Path) -> None:
    """Runs a compiler, which has to succeed in silence."""
    done = run(*argv, cwd=cwd)
    said = done.stdout + done.stderr
    assert (done.returncode, said) == (0, ""), said


class Child(Protocol):
    """Runs operations (see drive.py) in a fresh child and answers with their results."""

    def __call__(
        self, *ops: Json, cwd: Path | None = None, env: Mapping[str, str] | None = None, **settings: str
    ) -> list[Json]: ...


def driving(shim: Path, project: Path) -> Child:
    """Children that drive that shim, in the project's root unless they are told another folder."""

    def start(
        *ops: Json, cwd: Path | None = None, env: Mapping[str, str] | None = None, **settings: str
    ) -> list[Json]:
        done = subprocess.run(
            [sys.executable, "-S", str(Path(__file__).with_name("drive.py")), str(shim)],
            input=json.dumps(ops),
            cwd=cwd or project,
            env=clean_environment(settings | dict(env or {})),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"it ended with {done.returncode}: {done.stderr}"
        answers: list[Json] = json.loads(done.stdout)
        return answers

    return start


class Builds:
    """What is built once for all workers of a session, by the content of its sources.

    :param folder: one that the workers share.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *line: str | Path, cwd: Path) -> Path:
        """Like `build`; the line ends in `-o FILE`, which is then a copy of what was built first."""
        *words, output = line
        made = self.folder / self._key(words, cwd)
        with FileLock(f"{made}.lock"):
            if not made.exists():
                partial = made.with_suffix(".partial")
                build(*words, partial, cwd=cwd)
                partial.replace(made)
        return Path(shutil.copy(made, cwd / output))

    def _key(self, words: list[str | Path], cwd: Path) -> str:
        """From the words, and every source and header that lies beside a source among them."""
        names = [Path(word).name for word in words]
        digest = hashlib.sha256("\0".join(names).encode())
        for folder in sorted({(cwd / word).parent for word in words if str(word).endswith((".c", ".h"))}):
            for path in sorted(folder.glob("*.[ch]")):
                digest.update(path.read_bytes())
        return digest.hexdigest()


class Saboteurs:
    """Plugins that are broken on purpose, built when they are asked for."""

    def __init__(self, folder: Path, builds: Builds) -> None:
        self.folder, self.builds = folder, builds

    def __call__(self, name: str) -> Path:
        library = self.folder / f"{name}.so"
        if not library.exists():
            line = ("gcc", "-Wall", "-Wextra", "-fPIC", "-shared", f"{name}.c", "-o", library.name)
            self.builds(*line, cwd=self.folder)
        return library


IDENTITY = """
module @m {
  func.func @pair(%a: tensor<2x3xf32>, %b: tensor<f32>) -> (tensor<2x3xf32>, tensor<f32>) {
    return %a, %b : tensor<2x3xf32>, tensor<f32>
  }
}
"""

# The generic train verb's form; the labels are to be one-hot.
TRAIN = """
module @m {
  func.func @train(%p: tensor<2x3xf32>, %x: tensor<2x3xf32>, %y: tensor<2x2xf32>, %lr: tensor<f32>)
      -> (tensor<2x3xf32>, tensor<f32>) {
    return %p, %lr : tensor<2x3xf32>, tensor<f32>
  }
}
"""

ALL_REDUCE = """
module @m {
  func.func @summed(%x: tensor<2xf32>, %w: tensor<f32>) -> (tensor<2xf32>, tensor<f32>) {
    %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[GROUP]]> : tensor<1xNxi64>} : (tensor<2xf32>) -> tensor<2xf32>
    return %0, %w : tensor<2xf32>, tensor<f32>
  }
}
"""


def all_reduce(replicas: int) -> str:
    """A module that sums over so many replicas, since the groups are baked into the text."""
    group = ", ".join(str(i) for i in range(replicas))
    return ALL_REDUCE.replace("GROUP", group).replace("1xNx", f"1x{replicas}x")


def tensor(*dims: int, first: float = 1.0) -> Json:
    """An input that counts upwards from `first`."""
    total = 1
    for dim in dims:
        total *= dim
    return {"dims": list(dims), "data": [first + i for i in range(total)]}


def invoke(fn: str, inputs: list[Json], totals: list[int], **rest: Any) -> Json:
    return {"op": "invoke", "session": 0, "fn": fn, "inputs": inputs, "totals": totals} | rest


def create(path: Path | str | None) -> Json:
    return {"op": "create", "path": None if path is None else str(path)}


DATA_NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def images(count: int, seed: int) -> tuple[bytes, bytes]:
    """IDX images of ten kinds, each a bright band of its own, and their labels."""
    labels = bytes((i * 7 + seed) % 10 for i in range(count))
    band = [
        bytes(220 if 78 * k <= p < 78 * k + 78 else (p * 13 + k) % 50 for p in range(784)) for k in range(10)
    ]
    header = struct.pack(">4I", 0x803, count, 28, 28)
    return header + b"".join(band[k] for k in labels), struct.pack(">2I", 0x801, count) + labels


def train(
    trainer: Path, root: Path, plugin: Path, *argv: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs the trainer from a project's root."""
    return run(trainer, *argv, cwd=root, env={"PJRT_PLUGIN": str(plugin), **settings})


def fake_driver(folder: Path, ordinals: int = 1) -> str:
    """A folder with a libcuda.so.1 that knows so many devices."""
    (folder / "driver.c").write_text(
        f"""
        int cuInit(unsigned flags) {{ (void)flags; return 0; }}
        int cuDeviceGet(int *device, int ordinal) {{ *device = 40 + ordinal; return ordinal >= {ordinals}; }}
        int cuDeviceGetUuid_v2(unsigned char *out, int device) {{
          for (int i = 0; i < 16; i++) out[i] = (unsigned char)(device + i);
          return 0;
        }}
        """
    )
    build("gcc", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1", cwd=folder)
    return str(folder)
