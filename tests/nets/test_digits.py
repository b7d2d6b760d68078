"""The digits that ship: their format, their hashes, and that both nets learn them."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from fixtures.reference.data import make
from fixtures.reference.nets import oracle

DATA = Path(oracle.__file__).parents[1] / "data"


def images(part: str) -> oracle.Float64:
    data = (DATA / f"{part}-images-idx3-ubyte").read_bytes()
    count = int.from_bytes(data[4:8])
    return np.frombuffer(data, np.uint8, offset=16).reshape(count, 784) / 255.0


def labels(part: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.frombuffer((DATA / f"{part}-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8)


def accuracy(net: str, parameters: list[oracle.Array]) -> float:
    right = 0
    for start in range(0, 768, 128):
        (logits,) = oracle.ORACLES[f"{net}_fwd"]([images("t10k")[start : start + 128], *parameters])
        right += int((logits.argmax(axis=1) == labels("t10k")[start : start + 128]).sum())
    return right / 768


def train(net: str, parameters: list[oracle.Array], *, steps: int, rate: float) -> list[oracle.Array]:
    """As the trainer does it: batches in the file's order, wrapping around."""
    pixels, onehot = images("train"), np.eye(10)[labels("train")]
    for step in range(steps):
        rows = np.arange(step * 128, step * 128 + 128) % len(pixels)
        batch = [pixels[rows], *parameters, np.asarray(rate), onehot[rows]]
        parameters = list(oracle.ORACLES[f"{net}_train_step"](batch)[:-1])
    return parameters


@pytest.mark.parametrize(("part", "count"), [("train", 1029), ("t10k", 768)])
def test_headers_and_sizes_are_those_of_idx(part: str, count: int) -> None:
    pixels = (DATA / f"{part}-images-idx3-ubyte").read_bytes()
    digits = (DATA / f"{part}-labels-idx1-ubyte").read_bytes()

    assert pixels[:16] == b"".join(n.to_bytes(4) for n in (0x803, count, 28, 28))
    assert digits[:8] == b"".join(n.to_bytes(4) for n in (0x801, count))
    assert (len(pixels), len(digits)) == (16 + count * 784, 8 + count)


@pytest.mark.parametrize("part", ["train", "t10k"])
def test_every_digit_is_there_about_equally_often(part: str) -> None:
    counts = np.bincount(labels(part), minlength=10)

    assert len(counts) == 10
    assert counts.min() > 0.9 * counts.max()


def test_no_image_is_in_both_parts() -> None:
    train_set, held_out = ({image.tobytes() for image in images(part)} for part in ("train", "t10k"))

    assert not train_set & held_out


def test_the_document_has_the_hash_of_every_file() -> None:
    told = dict(re.findall(r"`(\S+-ubyte)`.*`([0-9a-f]{64})`", (DATA / "README.md").read_text()))

    assert told == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in DATA.glob("*-ubyte")}


def test_the_files_are_what_make_makes_of_the_source(tmp_path: Path) -> None:
    """The source is no part of the tree, but nothing of it is lost on the way, so it can be put together again."""
    source = np.empty((1797, 65), dtype=int)
    places = [place * 487 % 1029 for place in range(1029)] + list(range(1029, 1797))
    pixels = np.concatenate([images("train"), images("t10k")]).reshape(-1, 28, 28)[:, 3:26:3, 3:26:3] * 255
    source[places, :64] = (pixels.reshape(-1, 64).round() + 15) // 16
    source[places, 64] = np.concatenate([labels("train"), labels("t10k")])
    with gzip.open(tmp_path / "digits.csv.gz", "wt") as lines:
        np.savetxt(lines, source, fmt="%d", delimiter=",")

    made = make.idx_files(make.read(tmp_path / "digits.csv.gz"))

    assert made == {path.name: path.read_bytes() for path in DATA.glob("*-ubyte")}


def test_linear_learns_from_nothing() -> None:
    parameters = train("linear", [np.zeros((784, 10)), np.zeros(10)], steps=100, rate=0.2)

    assert accuracy("linear", parameters) >= 0.90


def test_mlp_learns() -> None:
    rng = np.random.default_rng(0)
    start: list[oracle.Array] = []
    for rows, columns in itertools.pairwise((784, 128, 64, 10)):
        start += [rng.standard_normal((rows, columns)) * np.sqrt(2 / rows), np.zeros(columns)]

    assert accuracy("mlp", train("mlp", start, steps=60, rate=0.2)) >= 0.85


def test_a_learning_rate_of_zero_learns_nothing() -> None:
    parameters = train("linear", [np.zeros((784, 10)), np.zeros(10)], steps=3, rate=0.0)

    assert accuracy("linear", parameters) < 0.2
