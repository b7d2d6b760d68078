"""Data layout. BOOTSTRAP.md#data-layout"""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.errors import DataError
from pytest_cudaboot.probes.datasets import read_layout
from pytest_cudaboot.project import Project
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
FILES = (IMAGES, LABELS, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture
def digits(checkout: Path, project: Project) -> Path:
    """A private copy of the project's digits, in a checkout that is built."""
    folder = checkout / "digits"
    folder.mkdir()
    for name in FILES:
        shutil.copy2(project.data / name, folder / name)
    return folder


@pytest.fixture
def refusal(run: Runner, checkout: Path) -> Callable[..., str]:
    """A function that gives a folder to the trainer, which must refuse it before it opens a shim."""

    def refuse(folder: Path, net: str = "linear") -> str:
        argv = ["./trainer", net, folder.name, "--steps", "1"]
        done = run(
            argv, cwd=checkout, env={"LEAN_MLIR_LOWERER_SO": "no-shim-is-opened"}, device=False, check=False
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "no-shim-is-opened" not in done.stderr
        return done.stderr

    return refuse


# > `data/` holds four files in MNIST's layout
@pytest.mark.spec("data.mnist")
def test_the_projects_digits_are_whole(project: Project, evidence: Evidence) -> None:
    found = read_layout(project.data, "mnist")

    evidence.measure(train_images=found.train.images, test_images=found.test.images)


# > Files that are cut short, of another format, or with a label out of range are refused by name.
@pytest.mark.spec("data.mnist", role="canary")
@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        pytest.param(IMAGES, lambda data: data[:-1], r"truncated: \d+ bytes", id="images cut short"),
        pytest.param(
            IMAGES, lambda data: b"PK\x03\x04" + data[4:], "wrong magic 0x504b0304", id="another format"
        ),
        pytest.param(LABELS, lambda data: data[:-1] + b"\x0a", "label 10 at", id="a label out of range"),
        pytest.param(
            LABELS,
            lambda data: struct.pack(">II", 0x801, 1) + data[8:9],
            r"1 labels for \d+ images",
            id="fewer labels than images",
        ),
        pytest.param(IMAGES, lambda _: b"", "truncated: 0 bytes", id="an empty file"),
    ],
)
def test_spoilt_digits_are_refused_by_name(
    digits: Path, refusal: Callable[..., str], name: str, spoil: Callable[[bytes], bytes], words: str
) -> None:
    (digits / name).write_bytes(spoil((digits / name).read_bytes()))

    assert re.search(rf"digits/{name}: {words}", refusal(digits))


@pytest.mark.spec("data.mnist", role="canary")
def test_a_wrong_folder_is_refused_by_name(checkout: Path, refusal: Callable[..., str]) -> None:
    assert f"no-such-folder/{IMAGES}: No such file" in refusal(checkout / "no-such-folder")


# > links to such files will do
@pytest.mark.spec("data.symlinks")
def test_linked_files_are_read(digits: Path, tmp_path: Path, evidence: Evidence) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in FILES:
        (linked / name).symlink_to(digits / name)

    through_links = read_layout(linked, "mnist")

    evidence.measure(train_images=through_links.train.images)
    assert through_links.sha256 == read_layout(digits, "mnist").sha256


@pytest.mark.spec("data.symlinks", role="canary")
def test_a_dangling_link_is_refused_by_name(digits: Path, refusal: Callable[..., str]) -> None:
    (digits / LABELS).unlink()
    (digits / LABELS).symlink_to(digits / "gone")

    assert f"digits/{LABELS}: a link to '{digits / 'gone'}'" in refusal(digits)


def cifar(folder: Path, images: int = 2) -> Path:
    """CIFAR-10 as its authors lay it out, with a few grey images; below a data folder."""
    record = bytes([3]) + bytes(3 * 32 * 32)
    (folder / "cifar-10").mkdir(parents=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / "cifar-10" / name).write_bytes(record * images)
    return folder


def imagenette(folder: Path, train_side: int = 256) -> Path:
    """Imagenette's bins with two grey images each; below a data folder."""
    (folder / "imagenette").mkdir(parents=True)
    for name, side in (("train", train_side), ("val", 224)):
        record = bytes([3]) + bytes(3 * side * side)
        (folder / "imagenette" / f"{name}.bin").write_bytes(struct.pack("<I", 2) + record * 2)
    return folder


@pytest.mark.spec("data.cifar")
def test_cifar_is_read(tmp_path: Path, evidence: Evidence) -> None:
    found = read_layout(cifar(tmp_path), "cifar-10")

    evidence.measure(train_images=found.train.images, test_images=found.test.images)
    assert (found.train.images, found.test.images) == (10, 2)


@pytest.mark.spec("data.cifar", role="canary")
def test_a_cut_batch_is_refused_by_name(tmp_path: Path, evidence: Evidence) -> None:
    batch = cifar(tmp_path) / "cifar-10" / "data_batch_3.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    evidence.act()

    with pytest.raises(DataError, match=r"data_batch_3\.bin"):
        read_layout(tmp_path, "cifar-10")


# > a net of 3 x 32 x 32 pixels is
# > trained on these.
@pytest.mark.spec("data.cifar", role="canary")
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(lambda data: data[:-1], "6145 bytes are no whole number of records", id="cut"),
        pytest.param(lambda data: data + b"\0", "6147 bytes are no whole number of records", id="too long"),
        pytest.param(lambda data: b"\x0a" + data[1:], "label 10 at index 0", id="a label out of range"),
        pytest.param(lambda data: data[: len(data) // 2], "1 records, where", id="fewer records"),
    ],
)
def test_the_trainer_refuses_a_spoilt_batch_by_name(
    checkout: Path, refusal: Callable[..., str], spoil: Callable[[bytes], bytes], words: str
) -> None:
    batch = cifar(checkout / "images") / "cifar-10" / "data_batch_3.bin"
    batch.write_bytes(spoil(batch.read_bytes()))

    assert f"images/cifar-10/data_batch_3.bin: {words}" in refusal(checkout / "images", "cifar8")


@pytest.mark.spec("data.imagenette")
def test_imagenette_is_read(tmp_path: Path, evidence: Evidence) -> None:
    found = read_layout(imagenette(tmp_path), "imagenette")

    evidence.measure(train_images=found.train.images, test_images=found.test.images)
    assert (found.train.shape, found.test.shape) == ((3, 256, 256), (3, 224, 224))


@pytest.mark.spec("data.imagenette", role="canary")
def test_a_stale_resolution_is_refused_by_name(tmp_path: Path, evidence: Evidence) -> None:
    imagenette(tmp_path, train_side=224)
    evidence.act()

    with pytest.raises(DataError, match=r"train\.bin.*224x224"):
        read_layout(tmp_path, "imagenette")
