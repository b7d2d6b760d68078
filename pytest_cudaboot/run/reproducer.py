"""Write a cut that shows a fault as a folder that can be sent upstream. It names no path, host or user of this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cudaboot.model import Json
from pytest_cudaboot.rules.iree_target import DEVICES, choose_target

if TYPE_CHECKING:
    from pytest_cudaboot.rules.first_bad_facts import FirstBad

ENTRY = "module"
_CHECK = '''\
"""Run module.mlir through a PJRT plugin and compare: PJRT_PLUGIN=/path/to/plugin.so python check.py

It needs numpy and pytest-cudaboot, which drives the plugin through PJRT's C API; JAX has no part in it.
"""

import os
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path
from pytest_cudaboot.lowerers.base import LowererConfig, make_lowerer
from pytest_cudaboot.lowerers.build import build_shim
from pytest_cudaboot.project import find_project

here = Path(__file__).parent
shim = build_shim(find_project("reference", here).path, user_cache_path("cudaboot") / "builds", env=os.environ)
config = LowererConfig(name="xla", platform={platform!r}, shim=str(shim), plugin=os.environ["PJRT_PLUGIN"])
session = make_lowerer(config).open_session(here / "module.mlir")
inputs = [np.load(here / f"input_{{index}}.npy") for index in range({inputs})]
seen = session.invoke({entry!r}, inputs)[{output}].astype(float)
error = float(np.max(np.abs(seen - np.load(here / "expected.npy").astype(float))))
print(f"largest difference: {{error:.9g}}; it was {difference:.9g}")
raise SystemExit(0 if error < {allowed!r} else 1)
'''


def write_reproducer(
    bad: FirstBad,
    folder: Path,
    *,
    versions: Mapping[str, str],
    platform: str,
    flags: Sequence[str] | None = None,
) -> Path:
    """The module, its inputs, what it should make, what it made, and how to run it.

    :param versions: what it was seen with, by name; see :func:`versions_of`.
    :param flags: words that told IREE's compiler its target; those of the platform's default otherwise.
    :returns: the folder.
    """
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for left in (*folder.glob("*.npy"), folder / "check.py"):  # of an earlier run in the same place
        left.unlink(missing_ok=True)
    head = f"@{bad.cut.entry}("
    (folder / f"{ENTRY}.mlir").write_text(bad.cut.text.replace(head, f"@{ENTRY}(", 1), encoding="utf-8")
    for index, array in enumerate(bad.inputs):
        np.save(folder / f"input_{index}.npy", array)
    np.save(folder / "expected.npy", np.asarray(bad.expected, np.float32))
    np.save(folder / "seen.npy", np.asarray(bad.seen, np.float32))
    lines = _commands(bad, platform, choose_target(platform, {}).flags if flags is None else flags)
    (folder / "README.md").write_text(_readme(bad, versions, platform, lines), encoding="utf-8")
    if bad.lowerer == "xla":
        (folder / "check.py").write_text(_check(bad, platform), encoding="utf-8")
    facts = {**bad.to_json(), "versions": dict(versions)}
    (folder / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return folder


def versions_of(facts: Json) -> dict[str, str]:
    """What ran, by the words of the process that ran it; files by their name alone."""
    said = facts.get("describe") or {}
    told = {
        "lowerer": facts.get("name"),
        "platform": said.get("platform") or facts.get("platform"),
        "platform version": said.get("platform_version"),
        "plugin": Path(said["plugin"]).name if said.get("plugin") else None,
        "PJRT C API": ".".join(map(str, said["api"])) if said.get("api") else None,
        "IREE runtime": said.get("version"),
        "IREE commit": said.get("commit"),
        "device": said.get("device_kind") or _devices(said.get("devices")),
        "CUDA that the driver supports": said.get("cuda_driver"),
        **{f"plugin's {name}": value for name, value in (said.get("attributes") or {}).items()},
    }
    return {name: _without_paths(str(value)) for name, value in told.items() if value}


def _devices(devices: object) -> str | None:
    """By their models; a UUID says which card it is, and that is nobody's business upstream."""
    names = (
        {str(one.get("name")) for one in devices if isinstance(one, dict)}
        if isinstance(devices, list)
        else ()
    )
    return ", ".join(sorted(names)) or None


def _without_paths(text: str) -> str:
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)


def _difference(bad: FirstBad) -> float:
    import numpy as np

    apart = np.abs(np.asarray(bad.seen, np.float64) - np.asarray(bad.expected, np.float64))
    return float(np.nan_to_num(apart, nan=np.inf).max())


def _check(bad: FirstBad, platform: str) -> str:
    difference = _difference(bad)
    return _CHECK.format(
        platform=platform,
        inputs=len(bad.inputs),
        entry=ENTRY,
        output=bad.output,
        difference=difference,
        allowed=difference / 2,
    )


def _readme(bad: FirstBad, versions: Mapping[str, str], platform: str, commands: Sequence[str]) -> str:
    facts = bad.to_json()
    what = "alone" if bad.alone else f"in {facts['operations']} operations together"
    lines = [
        f"# `{bad.operation.name}` of shape {facts['shape']} is off on {bad.lowerer}, {platform}",
        "",
        f"It shows {what}. The largest error of one value is {bad.error:.3g}, where rounding allows {bad.tolerance:.1g},",
        f"in units of the size in which that value is rounded. What is expected is {_source(bad.reference)}.",
        "",
        "    " + bad.operation.text.replace("\n", "\n    "),
        "",
        "| file | holds |",
        "|---|---|",
        f"| `{ENTRY}.mlir` | StableHLO: `{ENTRY}({', '.join(bad.cut.inputs)})`, which returns {_outputs(bad)} |",
        *(f"| `input_{index}.npy` | its input {index} |" for index in range(len(bad.inputs))),
        "| `expected.npy`, `seen.npy` | what it should make of them, and what it made |",
        "",
        "Seen with:",
        "",
        *(f"- {name}: {value}" for name, value in versions.items()),
        "",
        "To run it again:",
        "",
        *(f"    {line}" for line in commands),
        "",
    ]
    return "\n".join(lines)


def _source(reference: str) -> str:
    return "computed in float64 from the same inputs" if reference == "float64" else f"what {reference} made"


def _outputs(bad: FirstBad) -> str:
    others = len(bad.cut.outputs) - 1
    return f"`{bad.value}`" if not others else f"`{bad.value}` at place {bad.output}, among {others} others"


def _commands(bad: FirstBad, platform: str, flags: Sequence[str]) -> Sequence[str]:
    if bad.lowerer == "xla":
        return ["PJRT_PLUGIN=/path/to/plugin.so python check.py"]
    inputs = " ".join(f"--input=@input_{index}.npy" for index in range(len(bad.inputs)))
    wanted = " ".join(
        "--expected_output=@expected.npy" if place == bad.output else "--expected_output='(ignored)'"
        for place in range(len(bad.cut.outputs))
    )
    return [
        f"iree-compile {ENTRY}.mlir {' '.join(flags)} -o {ENTRY}.vmfb",
        f"iree-run-module --module={ENTRY}.vmfb --device={DEVICES[platform]} --function={ENTRY} {inputs} {wanted}",
    ]
