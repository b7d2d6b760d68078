"""A train step through the XLA shim against JAX: the same StableHLO text, the same transfers, on the same machine.

`python benchmarks/step_against_jax.py --platform cpu --plugin PLUGIN.so` prints a table for five cases of each net:

a  everything on the device, one step finished before the next
b  everything on the device, eight steps in flight
c  arrays of the host in and out
d  training as it is: the batch from the host, the loss read back
e  as d, but the loss is that of the step before

Each side runs alone in fresh processes, several of each, in turn. A process's figure for a case is the median over its
steps (b and e: over means of ten steps, since a call may return at once); the table shows the median over processes. The C side's loop is `step_driver.c`; JAX's is `step_jax.py`, in the
interpreter that `--python` names. It needs gcc, NumPy, and JAX with its plugin in that interpreter.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import small_tensors  # noqa: E402 a checkout is not installed
from pytest_cudaboot.rules.signature import Signature, read_signature  # noqa: E402 the same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

REFERENCE = ROOT / "fixtures" / "reference"
CASES = "abcde"
IN_FLIGHT = "be"
BLOCK = 10
SEND, HOLD = -1, -2
RATE = 1e-3

# Two programs of one text may round differently, and training enlarges that: losses agree if they differ by at most this
# share of what training has changed.
AGREEMENT = 0.01

# C over JAX that is asked for on a card, by net; on a CPU it is one number for all.
GOALS = {
    "linear": {"a": 1.10, "b": 1.05, "c": 0.85, "d": 0.85, "e": 0.85},
    "mlp": {"a": 1.10, "b": 1.05, "c": 0.85, "d": 0.85, "e": 0.85},
    "wide": {"a": 0.75, "b": 0.65, "c": 0.70, "d": 0.75, "e": 0.75},
}
CPU_GOAL = 1.2

FIND_PLUGIN = """
import glob, os, site, sysconfig
places = [sysconfig.get_path("platlib"), *site.getsitepackages(), site.getusersitepackages()]
found = [f for p in places for f in sorted(glob.glob(os.path.join(p, "jax_plugins/xla_cuda*/xla_cuda_plugin.so")))]
print(found[-1] if found else "")
"""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One case of one net: microseconds a step, the loss of the first step, and those after the same number of steps."""

    net: str
    case: str
    ours: list[float]
    theirs: list[float]
    losses: list[float]
    first: float
    goal: float | None

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def agree(self) -> bool:
        return max(self.losses) - min(self.losses) <= AGREEMENT * (
            self.first - statistics.median(self.losses)
        )


def roles(signature: Signature) -> list[int]:
    """What training does with each input of `x, parameters, lr, onehot`; a parameter's role is its output."""
    updated = len(signature.outputs) - 1
    return [SEND, *range(updated), HOLD, SEND]


def inputs(signature: Signature) -> list[Array]:
    """Seeded inputs: pixels, weights by their number of inputs, a small rate, one class a row."""
    rng = np.random.default_rng(5)
    x, *parameters, _, onehot = [tensor.shape for tensor in signature.inputs]
    drawn = [rng.standard_normal(shape) / np.sqrt(shape[0]) for shape in parameters]
    classes = np.eye(onehot[1])[rng.integers(onehot[1], size=onehot[0])]
    arrays = [rng.random(x), *drawn, np.array(RATE), classes]
    return [np.asarray(array, dtype=np.float32, order="C") for array in arrays]


def write_data(net: Path, folder: Path) -> tuple[Path, Path]:
    """A net's inputs for the two sides: words and floats for C, an archive for NumPy."""
    signature = read_signature(net.read_text())
    arrays, own = inputs(signature), roles(signature)
    shapes = [tensor.shape for tensor in signature.outputs]
    binary, archive = folder / f"{net.stem}.bin", folder / f"{net.stem}.npz"
    with binary.open("wb") as file:
        np.array([len(arrays), len(shapes)], np.int64).tofile(file)
        for array, role in zip(arrays, own, strict=True):
            np.array([role, array.ndim, *array.shape], np.int64).tofile(file)
            array.tofile(file)
        np.array([int(np.prod(shape)) for shape in shapes], np.int64).tofile(file)
    padded = [[len(shape), *shape, *[0] * (4 - len(shape))] for shape in shapes]
    named: dict[str, Any] = {f"in{index}": array for index, array in enumerate(arrays)}
    np.savez(archive, roles=np.array(own), outputs=np.array(padded), **named)
    return binary, archive


def build(folder: Path) -> tuple[Path, Path]:
    """The shim by its documented line, and the driver."""
    shim, driver = folder / "libpjrt_ffi.so", folder / "step_driver"
    compiler, sources = shutil.which("gcc"), REFERENCE / "ffi"
    if compiler is None:
        raise SystemExit("gcc is missing: the C side is built from its sources")
    flags = ["-fPIC", "-O2", "-shared"]
    subprocess.run([compiler, *flags, sources / "pjrt_ffi.c", "-ldl", "-o", shim], check=True)
    own = Path(__file__).with_name("step_driver.c")
    subprocess.run([compiler, "-O2", f"-I{sources}", own, "-ldl", "-o", driver], check=True)
    return shim, driver


def answer(words: Sequence[str | Path], env: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object that a fresh process prints."""
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))} exits with {done.returncode}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def cuda_plugin(python: str) -> str:
    """The plugin of that interpreter's JAX, so that both sides run the same one."""
    words = [python, "-c", FIND_PLUGIN]
    found = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if not found:
        raise SystemExit(f"{python} has no jax_plugins/xla_cuda*/xla_cuda_plugin.so; give --plugin FILE")
    return found


def microseconds(runs: Sequence[dict[str, Any]], case: str) -> list[float]:
    """Each process's median. Where steps are in flight it is over means of ten steps: a single call may return at once."""
    block = BLOCK if case in IN_FLIGHT else 1
    result = []
    for run in runs:
        times = run[case]["ns"]
        blocks = [times[at : at + block] for at in range(0, len(times) - block + 1, block)]
        result.append(statistics.median(map(statistics.mean, blocks)) / 1000)
    return result


def compare(
    net: str, ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], platform: str
) -> list[Row]:
    return [
        Row(
            net=net,
            case=case,
            ours=microseconds(ours, case),
            theirs=microseconds(theirs, case),
            losses=[run[case]["loss"] for run in [*ours, *theirs]],
            first=theirs[0]["d"]["first"],
            goal=CPU_GOAL if platform == "cpu" else GOALS.get(net, {}).get(case),
        )
        for case in CASES
    ]


def line(row: Row) -> str:
    spread = "  ".join(
        f"{min(v):8.1f} {statistics.median(v):8.1f} {max(v):8.1f}" for v in (row.ours, row.theirs)
    )
    goal = "" if row.goal is None else f"{row.goal:.2f} {'met' if row.ratio <= row.goal else 'MISSED'}"
    losses = f"{min(row.losses):.6g} {max(row.losses):.6g} of {row.first:.6g}"
    agree = f"{'agree' if row.agree else 'DIFFER'} {losses}"
    return f"{row.net:8} {row.case}  {spread}  {row.ratio:6.2f}  {goal:12} {agree}"


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a train step through the XLA shim against JAX")
    parser.add_argument("--platform", choices=("cpu", "cuda"), required=True, help="Where both sides run")
    parser.add_argument("--plugin", metavar="FILE", help="PJRT plugin of the C side; for cuda, JAX's own")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="Interpreter that has JAX")
    parser.add_argument(
        "--nets", default="linear,mlp,wide,many", metavar="LIST", help="Nets, or paths of train steps"
    )
    parser.add_argument("--processes", type=int, default=3, metavar="N", help="How many of each side")
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="Timed steps of a case")
    parser.add_argument("--warmup", type=int, default=40, metavar="N", help="Steps before them")
    parser.add_argument("--out", type=Path, metavar="FILE", help="All figures, as JSON")
    chosen = parser.parse_args(argv)
    if chosen.plugin is None and chosen.platform == "cpu":
        parser.error("on a CPU the C side needs --plugin FILE")
    chosen.plugin = chosen.plugin or cuda_plugin(chosen.python)
    return chosen


def train_step(word: str, folder: Path) -> Path:
    """A net's train step: a file as it is, one of the reference's, or the one that is rendered for this alone."""
    if "/" in word:
        return Path(word)
    if word != "wide":
        return REFERENCE / "nets" / f"{word}_train_step.mlir"
    path = folder / "wide_train_step.mlir"
    path.write_text(small_tensors.train_step())
    return path


def run_net(net: Path, chosen: argparse.Namespace, folder: Path, built: tuple[Path, Path]) -> tuple[Any, Any]:
    """The answers of both sides, who take turns; nothing else runs meanwhile."""
    binary, archive = write_data(net, folder)
    counts = [str(chosen.warmup), str(chosen.steps)]
    shim, driver = built
    side = Path(__file__).with_name("step_jax.py")
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PJRT_", "LEAN_MLIR_"))
    }
    ours, theirs = [], []
    for _ in range(chosen.processes):
        env = clean | {"PJRT_PLUGIN": chosen.plugin}
        ours.append(answer([driver, shim, net, binary, *counts], env))
        env = clean | {"JAX_PLATFORMS": chosen.platform}
        theirs.append(answer([chosen.python, side, net, archive, *counts], env))
    return ours, theirs


def main(argv: Sequence[str] | None = None) -> int:
    chosen = options(argv)
    rows: list[Row] = []
    facts: dict[str, Any] = {"platform": chosen.platform, "plugin": chosen.plugin, "steps": chosen.steps}
    started = time.monotonic()
    print(
        "net      case     C us: min, median, max    JAX us: min, median, max     C/JAX  asked for   losses"
    )
    with tempfile.TemporaryDirectory() as name:
        built = build(Path(name))
        for word in chosen.nets.split(","):
            net = train_step(word, Path(name))
            ours, theirs = run_net(net, chosen, Path(name), built)
            facts |= {"c": ours[-1]["facts"], "jax": theirs[-1]["facts"]}
            made = compare(net.stem.removesuffix("_train_step"), ours, theirs, chosen.platform)
            print("\n".join(line(row) for row in made), flush=True)
            rows += made
    print(f"{time.monotonic() - started:.0f} s; C: {facts['c']['platform_version']}; JAX: {facts['jax']}")
    if chosen.out is not None:
        cells = [dataclasses.asdict(row) | {"ratio": row.ratio, "agree": row.agree} for row in rows]
        chosen.out.write_text(json.dumps({"facts": facts, "rows": cells}, indent=1) + "\n")
    return 0 if all(row.agree for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
