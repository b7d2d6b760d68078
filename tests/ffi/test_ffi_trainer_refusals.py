"""What the trainer refuses, by name: data files, artifacts, and calls."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import DataError
from pytest_cudaboot.probes.datasets import read_layout
from tests.ffi.helpers import DATA_NAMES, fake_driver, images, run, train


def edit(data: Path, name: str, change: Any) -> None:
    path = data / f"{name}-ubyte"
    path.write_bytes(change(path.read_bytes()))


def label(value: int, at: int) -> Any:
    return lambda content: content[: 8 + at] + bytes([value]) + content[9 + at :]


BROKEN_DATA: dict[str, tuple[str, Any, str]] = {
    "truncated-images": (
        "train-images-idx3",
        lambda c: c[:-1],
        "truncated: 235199 bytes of data, its header says 235200",
    ),
    "truncated-labels": (
        "t10k-labels-idx1",
        lambda c: c[:50],
        "truncated: 42 bytes of data, its header says 150",
    ),
    "too-long": (
        "train-labels-idx1",
        lambda c: c + b"\0",
        "too long: 301 bytes of data, its header says 300",
    ),
    "header-only": ("t10k-images-idx3", lambda c: c[:10], "truncated: 10 bytes, an IDX header alone has 16"),
    "empty": ("train-labels-idx1", lambda _: b"", "truncated: 0 bytes"),
    "magic": (
        "train-images-idx3",
        lambda c: b"\x1f\x8b" + c[2:],
        "wrong magic 0x1f8b0803, expected 0x00000803",
    ),
    "labels-as-images": ("t10k-labels-idx1", lambda c: b"\0\0\x08\x03" + c[4:], "wrong magic 0x00000803"),
    "count": (
        "train-labels-idx1",
        lambda c: struct.pack(">2I", 0x801, 299) + c[8:-1],
        "299 labels for 300 images",
    ),
    "label": ("train-labels-idx1", label(10, 17), "label 10 at index 17, there are 10 classes"),
    "test-label": ("t10k-labels-idx1", label(255, 149), "label 255 at index 149, there are 10 classes"),
    "no-images": (
        "train-images-idx3",
        lambda c: c[:4] + bytes(4) + c[8:16],
        "impossible size 0 in its header",
    ),
    "huge": ("train-images-idx3", lambda c: c[:4] + b"\xff" * 12 + c[16:], "impossible size 4294967295"),
}


@pytest.mark.parametrize("case", BROKEN_DATA)
def test_broken_data_is_refused_by_name(trainer: Path, root: Path, data: Path, tiny: Path, case: str) -> None:
    name, change, words = BROKEN_DATA[case]
    edit(data, name, change)

    done = train(trainer, root, tiny, "linear", str(data))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"[trainer] {data / name}-ubyte: {words}" in done.stderr


@pytest.mark.parametrize("name", DATA_NAMES)
def test_missing_file(trainer: Path, root: Path, data: Path, tiny: Path, name: str) -> None:
    (data / f"{name}-ubyte").unlink()

    done = train(trainer, root, tiny, "linear", str(data))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"{data / name}-ubyte: No such file or directory" in done.stderr


def test_dangling_link_is_named_with_its_target(trainer: Path, root: Path, data: Path, tiny: Path) -> None:
    labels = data / "train-labels-idx1-ubyte"
    labels.unlink()
    labels.symlink_to("/mnt/gone/labels")

    done = train(trainer, root, tiny, "linear", str(data))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"{labels}: a link to '/mnt/gone/labels', which does not exist" in done.stderr


@pytest.mark.parametrize("case", [case for case in BROKEN_DATA if case != "huge"])
def test_the_gate_refuses_broken_data_in_the_same_words(data: Path, case: str) -> None:
    """Who reads the verdict and who reads the trainer see one sentence."""
    name, change, words = BROKEN_DATA[case]
    edit(data, name, change)

    with pytest.raises(DataError) as refusal:
        read_layout(data, "mnist")

    assert str(refusal.value).startswith(f"{data / name}-ubyte: {words}")


def test_images_of_another_size(trainer: Path, root: Path, data: Path, tiny: Path) -> None:
    for name in ("train-images-idx3", "t10k-images-idx3"):
        edit(data, name, lambda c: c[:8] + struct.pack(">2I", 14, 56) + c[16:])
    edit(data, "t10k-images-idx3", lambda c: c[:8] + struct.pack(">2I", 56, 14) + c[16:])

    done = train(trainer, root, tiny, "linear", str(data))

    assert "train images are 14x56, test images are 56x14" in done.stderr


def test_fewer_images_than_a_batch(trainer: Path, root: Path, data: Path, tiny: Path) -> None:
    for name, content in zip(DATA_NAMES, images(100, 3), strict=False):
        (data / f"{name}-ubyte").write_bytes(content)

    done = train(trainer, root, tiny, "linear", str(data), LD_LIBRARY_PATH=fake_driver(root))

    assert done.returncode == 1
    assert "100 train images do not make a batch of 128" in done.stderr


# ---- broken artifacts and calls

BROKEN_NETS = {
    "no-file": ("nonet", None, "nets/nonet_train_step.mlir: No such file or directory"),
    "stem": (
        "linear",
        ("@linear_train_step", "@other"),
        "its entry is @other, the file's stem is linear_train_step",
    ),
    "dynamic": ("linear", ("tensor<128x784xf32>,", "tensor<?x784xf32>,"), "a dynamic dimension"),
    "integers": (
        "linear",
        ("%lr: tensor<f32>", "%lr: tensor<i32>"),
        "its signature is no x, parameters, lr, onehot",
    ),
    "no-lr": ("linear", ("%lr: tensor<f32>, ", ""), "its signature is no x, parameters, lr, onehot"),
}


@pytest.mark.parametrize("case", BROKEN_NETS)
def test_broken_artifact_is_refused(trainer: Path, root: Path, data: Path, tiny: Path, case: str) -> None:
    net, change, words = BROKEN_NETS[case]
    path = root / "nets/linear_train_step.mlir"
    if change is not None:
        assert change[0] in path.read_text()
        path.write_text(path.read_text().replace(*change, 1))

    done = train(trainer, root, tiny, net, str(data))

    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr


USAGE = [
    (),
    ("linear",),
    ("linear", "data", "more"),
    ("../linear", "data"),
    ("linear", "data", "--steps", "0"),
    ("linear", "data", "--steps", "many"),
    ("linear", "data", "--steps"),
    ("linear", "data", "--lr", "-1"),
    ("linear", "data", "--lr", "nan"),
    ("linear", "data", "--seed", "-3"),
    ("linear", "data", "--shift", "-1"),
    ("linear", "data", "--shift", "100"),
    ("linear", "data", "--schedule", "cosine"),
    ("linear", "data", "--epochs", "3"),
]


@pytest.mark.parametrize("argv", USAGE, ids=" ".join)
def test_usage(trainer: Path, root: Path, argv: tuple[str, ...]) -> None:
    done = run(trainer, *argv, cwd=root)

    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: trainer NET DATA_DIR" in done.stderr
