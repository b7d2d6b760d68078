"""Data sets in the layouts that bring-up documents name: told by their facts once every byte that steers is checked.

The layouts, below a project's `data/`:

- `mnist`: four IDX files in the folder itself, `{train,t10k}-{images-idx3,labels-idx1}-ubyte`: big-endian magic and
  sizes, then one byte a pixel or label.
- `cifar-10`: `cifar-10/data_batch_{1..5}.bin` and `test_batch.bin`: records of a label and 3 x 32 x 32 bytes, no header.
- `imagenette`: `imagenette/train.bin` and `val.bin`: a little-endian count, then records of a label and 3 x N x N bytes,
  N = 256 to train on (a crop of 224 is taken from it) and 224 to validate. N is written nowhere, so a file of
  another resolution shows in its length alone, and a reader that trusts the count would take it.

It never changes a file, and holds no pixels.
"""

from __future__ import annotations

import hashlib
import math
import stat
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from pytest_cudaboot.errors import DataError, UsageError

CLASSES = 10
IDX_IMAGES, IDX_LABELS = 0x803, 0x801
CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)
IMAGENETTE_SIDES = {"train": 256, "val": 224}
HEADER = 4  # bytes of Imagenette's count
WHOLE = 1 << 26  # an Imagenette file beyond this is fingerprinted by its ends and labels

Shape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """One part of a data set.

    :param shape: channels, rows, columns of each image.
    """

    name: str
    images: int
    shape: Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A data set that was found to be whole.

    :param files: their names within the folder, in reading order; links keep their own names.
    :param sha256: over names, lengths, labels and contents; of a very large file's contents only over both ends.
    """

    kind: str
    folder: str
    files: tuple[str, ...]
    train: Split
    test: Split
    classes: int
    sha256: str


def read_layout(root: Path, kind: str) -> Dataset:
    """The data set of that kind below a project's data folder.

    :raises DataError: a file is missing, is no file, or contradicts its layout; the message names it.
    :raises UsageError: no layout of that name is known.
    """
    if kind not in LAYOUTS:
        raise UsageError(f"no layout {kind!r}; known are: {', '.join(LAYOUTS)}")
    folder, read = LAYOUTS[kind]
    return read(root / folder)


def _read_mnist(folder: Path) -> Dataset:
    parts = {}
    contents: list[_Content] = []
    for stem in ("train", "t10k"):
        images = _Content.read(folder / f"{stem}-images-idx3-ubyte")
        count, rows, columns = _idx_sizes(images, IDX_IMAGES)
        labels = _Content.read(folder / f"{stem}-labels-idx1-ubyte")
        (told,) = _idx_sizes(labels, IDX_LABELS)
        if told != count:
            _refuse(labels.path, f"{told} labels for {count} images")
        _check_labels(labels.path, labels.data[8:])
        contents += [images, labels]
        parts[stem] = Split(name=stem, images=count, shape=(1, rows, columns))
    train, test = parts["train"].shape, parts["t10k"].shape
    if train != test:
        sizes = f"train images are {train[1]}x{train[2]}, test images are {test[1]}x{test[2]}"
        _refuse(folder, sizes)
    return _dataset("mnist", folder, contents, parts["train"], parts["t10k"])


def _idx_sizes(content: _Content, magic: int) -> tuple[int, ...]:
    """The sizes in an IDX header, once magic and length of the file are right."""
    data = content.data
    rank = magic & 0xFF
    header = 4 + 4 * rank
    if len(data) < header:
        _refuse(content.path, f"truncated: {len(data)} bytes, an IDX header alone has {header}")
    seen, *sizes = struct.unpack_from(f">{1 + rank}I", data)
    if seen != magic:
        _refuse(content.path, f"wrong magic 0x{seen:08x}, expected 0x{magic:08x}")
    if 0 in sizes:
        _refuse(content.path, "impossible size 0 in its header")
    _check_length(content.path, len(data) - header, math.prod(sizes))
    return tuple(sizes)


def _read_cifar(folder: Path) -> Dataset:
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    contents = [_Content.read(folder / name) for name in names]
    counts = [_cifar_records(content) for content in contents]
    for content, count in zip(contents, counts, strict=True):
        if count != counts[0]:
            _refuse(content.path, f"{count} records, where {names[0]} has {counts[0]}")
    train = Split(name="train", images=sum(counts[:-1]), shape=CIFAR_SHAPE)
    test = Split(name="test", images=counts[-1], shape=CIFAR_SHAPE)
    return _dataset("cifar-10", folder, contents, train, test)


def _cifar_records(content: _Content) -> int:
    size = len(content.data)
    if size == 0:
        _refuse(content.path, f"empty; it should hold records of {CIFAR_RECORD} bytes")
    count, left = divmod(size, CIFAR_RECORD)
    if left:
        what = f"{size} bytes are no whole number of records of {CIFAR_RECORD} bytes; {left} are left over"
        _refuse(content.path, what)
    _check_labels(content.path, content.data[::CIFAR_RECORD])
    return count


def _read_imagenette(folder: Path) -> Dataset:
    parts = {}
    contents = []
    for stem, side in IMAGENETTE_SIDES.items():
        content, count = _imagenette_file(folder / f"{stem}.bin", side)
        contents.append(content)
        parts[stem] = Split(name=stem, images=count, shape=(3, side, side))
    return _dataset("imagenette", folder, contents, parts["train"], parts["val"])


def _imagenette_file(path: Path, side: int) -> tuple[_Content, int]:
    """The file and its number of records; it can be larger than memory, so only headers, labels and ends are read."""
    size = _regular_size(path)
    with _opened(path) as file:
        header = file.read(HEADER)
        if len(header) < HEADER:
            _refuse(path, f"truncated: {len(header)} bytes, the count alone has {HEADER}")
        (count,) = struct.unpack("<I", header)
        _check_resolution(path, count, size - HEADER, side)
        record = _record(side)
        labels = bytearray()
        for index in range(count):
            file.seek(HEADER + index * record)
            labels += file.read(1)
        _check_labels(path, labels)
        file.seek(0)
        head = file.read(WHOLE // 2)
        file.seek(max(len(head), size - WHOLE // 2))
        return _Content(path, head + file.read(), size, bytes(labels)), count


def _check_resolution(path: Path, count: int, payload: int, side: int) -> None:
    """The length has to be that of `count` records of this side; if it is that of another side, say so."""
    if count == 0:
        _refuse(path, "impossible count 0 in its header")
    pixels, left = divmod(payload, count)
    other = math.isqrt(max(pixels - 1, 0) // 3)
    if left == 0 and other not in (0, side) and _record(other) == pixels:
        _refuse(path, f"stale resolution: its {count} images are {other}x{other}, expected {side}x{side}")
    _check_length(path, payload, count * _record(side))


def _record(side: int) -> int:
    return 1 + 3 * side * side


LAYOUTS: dict[str, tuple[str, Callable[[Path], Dataset]]] = {
    "mnist": (".", _read_mnist),
    "cifar-10": ("cifar-10", _read_cifar),
    "imagenette": ("imagenette", _read_imagenette),
}


@dataclass(frozen=True, slots=True)
class _Content:
    """What was read of a file.

    :param size: of the whole file; `data` may be its ends alone.
    :param labels: where `data` does not hold all of them.
    """

    path: Path
    data: bytes
    size: int
    labels: bytes = b""

    @classmethod
    def read(cls, path: Path) -> _Content:
        size = _regular_size(path)
        with _opened(path) as file:
            return cls(path, file.read(), size)


def _regular_size(path: Path) -> int:
    """The length of a file, or of what a link leads to."""
    try:
        found = path.stat()
    except OSError as error:
        for link in (path, *path.parents):
            if link.is_symlink() and isinstance(error, FileNotFoundError) and not link.exists():
                _refuse(path, f"{_link(link, path)} {str(link.readlink())!r}, which does not exist")
        _refuse(path, str(error.strerror))
    if stat.S_ISDIR(found.st_mode):
        _refuse(path, "Is a directory")
    if not stat.S_ISREG(found.st_mode):
        _refuse(path, "not a regular file")
    return found.st_size


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        _refuse(path, str(error.strerror))


def _link(link: Path, path: Path) -> str:
    return "a link to" if link == path else f"{str(link)!r} is a link to"


def _check_length(path: Path, payload: int, wanted: int) -> None:
    if payload != wanted:
        how = "truncated" if payload < wanted else "too long"
        _refuse(path, f"{how}: {payload} bytes of data, its header says {wanted}")


def _check_labels(path: Path, labels: Sequence[int]) -> None:
    """A label past the last class would become a row of zeros, silently."""
    if max(labels) >= CLASSES:
        index = next(index for index, label in enumerate(labels) if label >= CLASSES)
        _refuse(path, f"label {labels[index]} at index {index}, there are {CLASSES} classes")


def _dataset(kind: str, folder: Path, contents: Iterable[_Content], train: Split, test: Split) -> Dataset:
    digest = hashlib.sha256()
    names = []
    for content in contents:
        names.append(content.path.name)
        digest.update(f"{content.path.name} {content.size} ".encode() + content.labels)
        digest.update(content.data)
    return Dataset(
        kind=kind,
        folder=str(folder),
        files=tuple(names),
        train=train,
        test=test,
        classes=CLASSES,
        sha256=digest.hexdigest(),
    )


def _refuse(path: Path, what: str) -> NoReturn:
    raise DataError(f"{path}: {what}")
