"""The renderer reproduces the committed artifacts, and says which are stale."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.reference.nets import oracle, render
from pytest_cudaboot.rules.signature import check_artifact

NETS = Path(render.__file__).parent
NAMES = ("bn_nchw", "cifar8", "cifar8_bn", "cnn", "linear", "ln_nchw", "many", "mlp")
ENTRIES = [f"{net}_{part}" for net in NAMES for part in ("fwd", "train_step")]


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


@pytest.mark.parametrize("net", ["cnn", "mlp"])
def test_the_parts_of_a_net_name_their_arguments_in_one_order(net: str) -> None:
    forward, step = (
        re.findall(r"%(\w+): ", render.artifacts()[f"{net}_{part}.mlir"].partition(") -> ")[0])
        for part in ("fwd", "train_step")
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
    """From another folder and another place than the tree's, as in a checkout."""
    (tmp_path / "nets").mkdir()
    for part in NETS.glob("*.py"):
        shutil.copy(part, tmp_path / "nets")
    made = tmp_path / "made"
    made.mkdir()
    argv = [sys.executable, "-I", "-S", str(tmp_path / "nets/render.py"), "--write", "--folder", str(made)]
    subprocess.run(argv, check=True, capture_output=True, cwd=tmp_path)

    assert sorted(path.stem for path in made.iterdir()) == sorted(ENTRIES)


def test_cnn_is_made_of_the_operations_that_it_is_there_for() -> None:
    step = render.artifacts()["cnn_train_step.mlir"]

    assert step.count("stablehlo.convolution") == 2 + 2 + 1  # forward, by each kernel, by the second input
    assert step.count("compare GE, %a, %b") == 2  # of equals the first one is picked
    assert step.count('"stablehlo.reduce_window"') == step.count('"stablehlo.select_and_scatter"') == 2


def test_a_batch_norms_backward_half_stacks_sums_over_all_but_the_channels() -> None:
    """The loss's gradient by scale and shift, and two means: what iree-org/iree#24282 is about."""
    step = render.artifacts()["bn_nchw_train_step.mlir"]

    assert step.count("across dimensions = [0, 2, 3]") == 2 + 2 + 2


def test_nets_for_the_compilers_gaps_have_no_convolution() -> None:
    """Compilers of that age fail on one for a reason of its own."""
    for net in ("bn_nchw", "ln_nchw"):
        assert "convolution" not in render.artifacts()[f"{net}_train_step.mlir"]


def test_many_has_64_parameters() -> None:
    assert sum(len(layer.parameters()) for layer in render.NETS["many"].layers) == 64


def test_replicas_share_the_batch_and_average_what_they_made() -> None:
    text = render.train_step("linear", 4)

    assert "%x: tensor<32x784xf32>" in text
    assert text.count('"stablehlo.all_reduce"') == 3
    assert text.count("replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>") == 3


@pytest.mark.parametrize(
    ("net", "replicas", "words"),
    [
        ("linear", "3", "a batch of 128 has no 3 equal parts"),
        ("linear", "0", "--replicas 0 is not a number of replicas"),
        ("cifar8_bn", "2", "a batch norm over a part of the batch is another function"),
    ],
)
def test_what_can_not_be_shared_is_refused(
    net: str, replicas: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refusal:
        render.main(["--step", net, "--replicas", replicas])

    assert refusal.value.code == 2
    assert words in capsys.readouterr().err


def test_one_replica_is_the_committed_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert render.main(["--step", "mlp"]) == 0

    assert capsys.readouterr().out == (NETS / "mlp_train_step.mlir").read_text()
