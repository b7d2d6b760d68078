"""The renderer reproduces the committed artifacts, and says which are stale."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.reference.nets import oracle, render
from pytest_cudaboot.rules.signature import check_artifact

NETS = Path(render.__file__).parent
ENTRIES = ["linear_fwd", "linear_train_step", "mlp_fwd", "mlp_train_step"]


def test_the_committed_artifacts_are_what_is_rendered() -> None:
    committed = {path.name: path.read_bytes() for path in NETS.glob("*.mlir")}

    assert committed == {name: text.encode() for name, text in render.artifacts().items()}


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_artifact_has_the_oracles_signature(entry: str) -> None:
    signature = check_artifact(NETS / f"{entry}.mlir")
    inputs = oracle.inputs(entry, 0)

    assert [tensor.shape for tensor in signature.inputs] == [array.shape for array in inputs]
    assert [tensor.shape for tensor in signature.outputs] == [
        array.shape for array in oracle.ORACLES[entry](inputs)
    ]


def test_the_parts_of_a_net_name_their_arguments_in_one_order() -> None:
    forward, step = (
        re.findall(r"%(\w+): ", render.artifacts()[f"mlp_{part}.mlir"]) for part in ("fwd", "train_step")
    )

    assert forward == ["x", "W0", "b0", "W1", "b1", "W2", "b2"]
    assert step == [*forward, "lr", "onehot"]


def test_check_is_silent_where_nothing_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert render.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_check_names_what_is_stale_or_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    render.main(["--write", "--folder", str(tmp_path)])
    (tmp_path / "mlp_fwd.mlir").write_text("module {}\n")
    (tmp_path / "linear_fwd.mlir").unlink()
    capsys.readouterr()

    assert render.main(["--check", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "linear_fwd.mlir: stale; render it with --write",
        "mlp_fwd.mlir: stale; render it with --write",
    ]


def test_it_runs_as_a_script_without_anything_installed(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(NETS / "render.py"), "--write", "--folder", str(tmp_path)]
    subprocess.run(argv, check=True, capture_output=True, cwd=tmp_path)

    assert sorted(path.stem for path in tmp_path.iterdir()) == ENTRIES
