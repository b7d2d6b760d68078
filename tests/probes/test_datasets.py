"""The layouts of data: what a whole set tells, and every broken form refused by name."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.errors import DataError, UsageError
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.datasets import LAYOUTS, Split, read_layout

REFERENCE = Path(__file__).resolve().parents[2] / "fixtures/reference/data"
CIFAR = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
Change = Callable[[bytes], bytes]


def idx(labels: bytes, rows: int = 4, columns: int = 5) -> tuple[bytes, bytes]:
    images = struct.pack(">4I", 0x803, len(labels), rows, columns) + bytes(len(labels) * rows * columns)
    return images, struct.pack(">2I", 0x801, len(labels)) + labels


def records(labels: bytes, side: int) -> bytes:
    return b"".join(bytes([label]) + bytes([label]) * (3 * side * side) for label in labels)


def imagenette(labels: bytes, side: int) -> bytes:
    return struct.pack("<I", len(labels)) + records(labels, side)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data folder with small sets of all three kinds."""
    files = {}
    for stem, labels in (("train", b"\0\1\2\3\4\5\6"), ("t10k", b"\7\x08\x09")):
        files[f"{stem}-images-idx3-ubyte"], files[f"{stem}-labels-idx1-ubyte"] = idx(labels)
    files |= {f"cifar-10/{name}": records(b"\0\x09", 32) for name in CIFAR}
    files |= {
        "imagenette/train.bin": imagenette(b"\1\2\3", 256),
        "imagenette/val.bin": imagenette(b"\4", 224),
    }
    for name, content in files.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(content)
    return tmp_path / "data"


WHOLE = {
    "mnist": (
        Split(name="train", images=7, shape=(1, 4, 5)),
        Split(name="t10k", images=3, shape=(1, 4, 5)),
    ),
    "cifar-10": (
        Split(name="train", images=10, shape=(3, 32, 32)),
        Split(name="test", images=2, shape=(3, 32, 32)),
    ),
    "imagenette": (
        Split(name="train", images=3, shape=(3, 256, 256)),
        Split(name="val", images=1, shape=(3, 224, 224)),
    ),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_whole_set_tells_its_facts(root: Path, kind: str) -> None:
    found = read_layout(root, kind)

    assert (found.train, found.test) == WHOLE[kind]
    assert (found.kind, found.classes) == (kind, 10)
    assert all((Path(found.folder) / name).is_file() for name in found.files)
    assert to_json(found)["train"]["images"] == found.train.images


def test_the_reference_project_has_a_whole_set() -> None:
    found = read_layout(REFERENCE, "mnist")

    assert (found.train.images, found.test.images, found.train.shape) == (1029, 768, (1, 28, 28))


def test_an_unknown_kind_is_told_which_there_are(root: Path) -> None:
    with pytest.raises(UsageError, match="no layout 'imagenet'; known are: mnist, cifar-10, imagenette"):
        read_layout(root, "imagenet")


# ---- the fingerprint


@pytest.mark.parametrize(
    "name", ["t10k-images-idx3-ubyte", "cifar-10/data_batch_4.bin", "imagenette/train.bin"]
)
def test_one_pixel_changes_the_fingerprint(root: Path, name: str) -> None:
    kind = {"t10k": "mnist", "cifa": "cifar-10", "imag": "imagenette"}[name[:4]]
    before = read_layout(root, kind).sha256
    content = bytearray((root / name).read_bytes())
    content[-1] ^= 0xFF
    (root / name).write_bytes(content)

    assert read_layout(root, kind).sha256 != before


def test_two_batches_in_each_others_place_are_another_set(root: Path) -> None:
    (root / "cifar-10/data_batch_2.bin").write_bytes(records(b"\5\5", 32))
    before = read_layout(root, "cifar-10").sha256
    (root / "cifar-10/data_batch_2.bin").rename(root / "spare")
    (root / "cifar-10/data_batch_3.bin").rename(root / "cifar-10/data_batch_2.bin")
    (root / "spare").rename(root / "cifar-10/data_batch_3.bin")

    assert read_layout(root, "cifar-10").sha256 != before


def test_a_label_in_the_middle_of_a_large_file_changes_the_fingerprint(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large file's contents only the ends count, but every label does."""
    monkeypatch.setattr("pytest_cudaboot.probes.datasets.WHOLE", 1000)
    before = read_layout(root, "imagenette").sha256
    (root / "imagenette/train.bin").write_bytes(imagenette(b"\1\7\3", 256))

    assert read_layout(root, "imagenette").sha256 != before


# ---- links


@pytest.mark.parametrize("kind", LAYOUTS)
def test_links_to_files_are_accepted(root: Path, tmp_path: Path, kind: str) -> None:
    whole = read_layout(root, kind)
    linked = tmp_path / "linked"
    (linked / LAYOUTS[kind][0]).mkdir(parents=True)
    for name in whole.files:
        (linked / LAYOUTS[kind][0] / name).symlink_to(Path(whole.folder) / name)

    assert read_layout(linked, kind).sha256 == whole.sha256


def test_a_link_to_a_folder_is_accepted(root: Path, tmp_path: Path) -> None:
    shutil.move(root / "imagenette", tmp_path / "elsewhere")
    (root / "imagenette").symlink_to(tmp_path / "elsewhere")

    assert read_layout(root, "imagenette").train.images == 3


ONE_OF_EACH = [
    ("mnist", "t10k-labels-idx1-ubyte"),
    ("cifar-10", "cifar-10/data_batch_5.bin"),
    ("imagenette", "imagenette/val.bin"),
]


@pytest.mark.parametrize(("kind", "name"), ONE_OF_EACH)
def test_a_dangling_link_is_named_with_its_target(root: Path, kind: str, name: str) -> None:
    (root / name).unlink()
    (root / name).symlink_to("/mnt/gone/file")

    with pytest.raises(DataError, match=rf"{name}: a link to '/mnt/gone/file', which does not exist$"):
        read_layout(root, kind)


def test_a_dangling_link_to_a_folder_is_named_with_its_target(root: Path) -> None:
    shutil.rmtree(root / "imagenette")
    (root / "imagenette").symlink_to("/mnt/gone")

    with pytest.raises(
        DataError, match=r"train.bin: '.*/imagenette' is a link to '/mnt/gone', which does not exist$"
    ):
        read_layout(root, "imagenette")


# ---- what is no file


@pytest.mark.parametrize(("kind", "name"), ONE_OF_EACH)
def test_a_missing_file_is_named(root: Path, kind: str, name: str) -> None:
    (root / name).unlink()

    with pytest.raises(DataError, match=rf"{root}/{name}: No such file or directory$"):
        read_layout(root, kind)


@pytest.mark.parametrize(("kind", "name"), ONE_OF_EACH)
def test_a_folder_is_no_file(root: Path, kind: str, name: str) -> None:
    (root / name).unlink()
    (root / name).mkdir()

    with pytest.raises(DataError, match=rf"{name}: Is a directory$"):
        read_layout(root, kind)


@pytest.mark.parametrize(("kind", "name"), ONE_OF_EACH)
def test_a_pipe_is_no_file_and_nobody_waits_for_it(root: Path, kind: str, name: str) -> None:
    (root / name).unlink()
    os.mkfifo(root / name)

    with pytest.raises(DataError, match=rf"{name}: not a regular file$"):
        read_layout(root, kind)


# ---- broken contents


def relabel(at: int, value: int) -> Change:
    return lambda content: content[:at] + bytes([value]) + content[at + 1 :]


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
BATCH, TRAIN = "cifar-10/data_batch_2.bin", "imagenette/train.bin"
BIG, SMALL = 1 + 3 * 256 * 256, 1 + 3 * 224 * 224

BROKEN: dict[str, tuple[str, Change, str]] = {
    "mnist-empty": (LABELS, lambda _: b"", "truncated: 0 bytes, an IDX header alone has 8"),
    "mnist-header-only": (IMAGES, lambda c: c[:10], "truncated: 10 bytes, an IDX header alone has 16"),
    "mnist-short": (IMAGES, lambda c: c[:-1], "truncated: 139 bytes of data, its header says 140"),
    "mnist-long": (LABELS, lambda c: c + b"\0", "too long: 8 bytes of data, its header says 7"),
    "mnist-gzip": (
        IMAGES,
        lambda c: b"\x1f\x8b\x08\x08" + c[4:],
        "wrong magic 0x1f8b0808, expected 0x00000803",
    ),
    "mnist-swapped": (LABELS, lambda _: idx(bytes(7))[0], "wrong magic 0x00000803, expected 0x00000801"),
    "mnist-none": (IMAGES, lambda _: idx(b"")[0], "impossible size 0 in its header"),
    "mnist-count": (LABELS, lambda _: idx(bytes(6))[1], "6 labels for 7 images"),
    "mnist-label": (LABELS, relabel(8 + 4, 10), "label 10 at index 4, there are 10 classes"),
    "cifar-empty": (BATCH, lambda _: b"", "empty; it should hold records of 3073 bytes"),
    "cifar-short": (BATCH, lambda c: c[:-1], "6145 bytes are no whole number of records of 3073 bytes"),
    "cifar-100": (
        BATCH,
        lambda _: bytes(2 * 3074),
        "6148 bytes are no whole number of records of 3073 bytes",
    ),
    "cifar-count": (BATCH, lambda c: c[:3073], "1 records, where data_batch_1.bin has 2"),
    "cifar-test-count": (
        "cifar-10/test_batch.bin",
        lambda c: c + c,
        "4 records, where data_batch_1.bin has 2",
    ),
    "cifar-label": (BATCH, relabel(3073, 255), "label 255 at index 1, there are 10 classes"),
    "imagenette-empty": (TRAIN, lambda _: b"", "truncated: 0 bytes, the count alone has 4"),
    "imagenette-short": (
        TRAIN,
        lambda c: c[:-1],
        f"truncated: {3 * BIG - 1} bytes of data, its header says {3 * BIG}",
    ),
    "imagenette-long": (
        TRAIN,
        lambda c: c + b"\0",
        f"too long: {3 * BIG + 1} bytes of data, its header says {3 * BIG}",
    ),
    "imagenette-count": (
        TRAIN,
        lambda c: struct.pack("<I", 4) + c[4:],
        f"truncated: {3 * BIG} bytes of data, its header says {4 * BIG}",
    ),
    "imagenette-big-endian": (TRAIN, lambda c: struct.pack(">I", 3) + c[4:], "truncated: "),
    "imagenette-none": (TRAIN, lambda c: bytes(4) + c[4:], "impossible count 0 in its header"),
    "imagenette-stale": (
        TRAIN,
        lambda _: imagenette(b"\1\2\3", 224),
        "stale resolution: its 3 images are 224x224, expected 256x256",
    ),
    "imagenette-stale-val": (
        "imagenette/val.bin",
        lambda _: imagenette(b"\4", 256),
        "stale resolution: its 1 images are 256x256, expected 224x224",
    ),
    "imagenette-label": (TRAIN, relabel(4 + 2 * BIG, 10), "label 10 at index 2, there are 10 classes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_contents_are_refused_by_name(root: Path, case: str) -> None:
    name, change, words = BROKEN[case]
    (root / name).write_bytes(change((root / name).read_bytes()))

    with pytest.raises(DataError) as refusal:
        read_layout(root, case.partition("-")[0].replace("cifar", "cifar-10"))

    assert str(refusal.value).startswith(f"{root / name}: {words}")


def test_images_of_two_sizes_are_refused(root: Path) -> None:
    (root / "t10k-images-idx3-ubyte").write_bytes(idx(bytes(3), 5, 4)[0])

    with pytest.raises(DataError, match=r"data: train images are 4x5, test images are 5x4$"):
        read_layout(root, "mnist")
