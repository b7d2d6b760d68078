"""The trainer on CIFAR-10's layout: the digits in it are learned, and what is spoilt is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.reference.data import coloured
from pytest_cudaboot.errors import DataError
from pytest_cudaboot.probes.datasets import CIFAR_RECORD, read_layout
from tests.ffi.helpers import build, run, train

FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
Change = Callable[[bytes], bytes]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with two blank images a file, but for their labels."""
    place = tmp_path / "data" / "cifar-10"
    place.mkdir(parents=True)
    for number, name in enumerate(FILES):
        (place / name).write_bytes(b"".join(bytes([number + n]) + bytes(CIFAR_RECORD - 1) for n in (0, 1)))
    return place


SPOILT: dict[str, tuple[str, Change, str]] = {
    "truncated": (
        "data_batch_3.bin",
        lambda c: c[:-1],
        "6145 bytes are no whole number of records of 3073 bytes; 3072 are left over",
    ),
    "another-record": (
        "test_batch.bin",
        lambda c: c + bytes(2),  # CIFAR-100 has two labels a record
        "6148 bytes are no whole number of records of 3073 bytes; 2 are left over",
    ),
    "empty": ("data_batch_1.bin", lambda _: b"", "empty; it should hold records of 3073 bytes"),
    "label": (
        "data_batch_5.bin",
        lambda c: c[:CIFAR_RECORD] + b"\x0a" + c[CIFAR_RECORD + 1 :],
        "label 10 at index 1, there are 10 classes",
    ),
    "fewer": (
        "test_batch.bin",
        lambda c: c[:CIFAR_RECORD],
        "1 records, where data_batch_1.bin has 2",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_batches_are_refused_by_name(
    trainer: Path, root: Path, tiny: Path, folder: Path, case: str
) -> None:
    """In the gate's own words: who reads the verdict and who reads the trainer see one sentence."""
    name, change, words = SPOILT[case]
    (folder / name).write_bytes(change((folder / name).read_bytes()))

    done = train(trainer, root, tiny, "cifar8", str(folder.parent))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"[trainer] {folder / name}: {words}\n" in done.stderr
    with pytest.raises(DataError) as refusal:
        read_layout(folder.parent, "cifar-10")
    assert str(refusal.value) == f"{folder / name}: {words}"


@pytest.mark.parametrize("name", FILES)
def test_a_missing_batch(trainer: Path, root: Path, tiny: Path, folder: Path, name: str) -> None:
    (folder / name).unlink()

    done = train(trainer, root, tiny, "cifar8", str(folder.parent))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"{folder / name}: No such file or directory" in done.stderr


def test_the_digits_in_colour_are_what_the_layout_wants(tmp_path: Path) -> None:
    coloured.write(tmp_path)

    found = read_layout(tmp_path, "cifar-10")

    assert (found.train.images, found.test.images, found.train.shape) == (1025, 205, (3, 32, 32))


def test_a_colour_does_not_tell_the_digit() -> None:
    kept: dict[int, set[tuple[bool, ...]]] = {}
    for made in coloured.records("train"):
        brightest = [max(made[1 + 1024 * channel : 1025 + 1024 * channel]) for channel in range(3)]
        bright = tuple(2 * value > max(brightest) for value in brightest)
        kept.setdefault(made[0], set()).add(bright)

    assert {len(colours) for colours in kept.values()} == {len(coloured.COLOURS)}


def test_a_stroke_stays_where_it_was() -> None:
    pixels = bytes(28 * 28 - 1) + b"\xff"

    made = coloured.record(7, pixels, (255, 96, 0))

    assert len(made) == CIFAR_RECORD
    assert made[0] == 7
    last = 32 * 29 + 29  # two blank rows and columns before the image
    assert [made[1 + 1024 * channel + last] for channel in range(3)] == [255, 96, 0]
    assert sum(made[1:]) == 255 + 96


def test_it_learns_the_digits_in_colour(trainer: Path, root: Path, cpu_plugin: Path, tmp_path: Path) -> None:
    coloured.write(tmp_path / "data")

    done = train(trainer, root, cpu_plugin, "cifar8_bn", str(tmp_path / "data"), "--steps", "60")

    assert done.returncode == 0, done.stderr
    header, *steps, end = [json.loads(line) for line in done.stdout.splitlines()]
    told = [header["dataset"][name] for name in ("channels", "rows", "columns", "train_images")]
    assert told == [3, 32, 32, 1025]
    losses = [step["loss"] for step in steps]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert end["images"] == 205


MOVED = """
#define main trainer_main
#include "ffi/trainer.c"
#undef main
int main(void) {
  enum { ROWS = 4, COLUMNS = 5, SIZE = ROWS * COLUMNS };
  float pixels[2 * SIZE], out[2 * SIZE];
  image_set set = {1, 2, ROWS, COLUMNS, pixels, NULL};
  net n = {0};
  run r = {0};
  int i;
  n.pixels = 2 * SIZE;
  r.net = &n;
  r.x = out;
  r.shift = 2;
  r.random = 3;
  for (i = 0; i < 2 * SIZE; i++) pixels[i] = (float)(i < SIZE ? i + 1 : 100 * (i - SIZE + 1));
  copy_moved(&r, &set, 0, 0);
  for (i = 0; i < 2 * SIZE; i++) printf("%g\\n", (double)out[i]);
  return 0;
}
"""


def test_a_shift_moves_all_channels_alike(project: Path, tmp_path: Path) -> None:
    """The second channel is a hundred times the first, and stays so."""
    source = tmp_path / "moved.c"
    source.write_text(MOVED)
    build("gcc", f"-I{project}", str(source), "-ldl", "-lm", "-o", str(tmp_path / "moved"), cwd=project)

    moved = [float(word) for word in run(tmp_path / "moved", cwd=project).stdout.split()]

    assert moved[20:] == [100 * value for value in moved[:20]]
    assert 0 in moved[:20]
    assert any(moved[:20])
