"""What is read of Lean's tools, a document's trainers and their logs."""

from __future__ import annotations

import pytest

from pytest_cudaboot.rules.lean import (
    Trainer,
    documented_trainers,
    log_faults,
    losses,
    opened,
    pinned_version,
    proofs_key,
    told_version,
    unproved,
)

DOCUMENT = """\
# Up

```bash
lake build ProofsMinimal  # no program
lake build mnist-linear cifar8
CUDA_VISIBLE_DEVICES=0 .lake/build/bin/cifar8 data --steps 3   # trains
./.lake/build/bin/mnist-linear data
.lake/build/bin/never-built data
```
"""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("leanprover/lean4:v4.12.0\n", "4.12.0"),
        ("leanprover/lean4:v4.13.0-rc3", "4.13.0-rc3"),
        ("4.9.1", "4.9.1"),
        ("leanprover/lean4:nightly", None),
    ],
)
def test_the_pinned_version(text: str, version: str | None) -> None:
    assert pinned_version(text) == version


def test_the_version_that_a_tool_tells() -> None:
    assert told_version("Lake version 5.0.0-dc25260 (Lean version 4.12.0)") == "4.12.0"
    assert told_version("Lean (version 4.13.0-rc3, x86_64-unknown-linux-gnu, commit 01d4)") == "4.13.0-rc3"
    assert told_version("command not found") is None


def test_a_trainer_is_what_is_built_and_run() -> None:
    assert documented_trainers(DOCUMENT) == (
        Trainer(name="cifar8", arguments=("data", "--steps", "3")),
        Trainer(name="mnist-linear", arguments=("data",)),
    )


def test_a_proofs_key_is_of_all_that_it_depends_on() -> None:
    files = {"A.lean": b"a", "B.lean": b"b", "lean-toolchain": b"v4"}
    keys = {
        proofs_key(files, "Proofs"),
        proofs_key(files, "ProofsMinimal"),
        proofs_key({**files, "A.lean": b"ab", "B.lean": b""}, "Proofs"),
        proofs_key({**files, "lean-toolchain": b"v5"}, "Proofs"),
        proofs_key({"A.lean": b"a", "C.lean": b"b", "lean-toolchain": b"v4"}, "Proofs"),
    }

    assert len(keys) == 5
    assert proofs_key(dict(reversed(files.items())), "Proofs") in keys


def test_a_proof_that_is_left_out_is_seen() -> None:
    line = "warning: ././././Proofs.lean:3:8: declaration uses 'sorry'"

    assert unproved(f"✔ [1/2] Built A\n{line}\nBuild completed") == [line]
    assert unproved("A comment that says sorry") == []


def test_the_loaders_trace_names_driver_and_shims_only() -> None:
    trace = (
        b"  7:\tfile=libcuda.so.1 [0];  dynamically loaded by /x [0]\n"
        b"  7:\tcalling init: /co/ffi/libiree_ffi.so\n"
        b"  7:\tfile=libcudart.so.12 [0];  needed by /x [0]\n"
        b"  7:\tcalling init: /lib/libc.so.6\n"
    )

    assert opened(trace) == ["/co/ffi/libiree_ffi.so", "libcuda.so.1"]


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("epoch 1 loss=0.5 acc 3\nepoch 2 loss: 2.5e-1", [0.5, 0.25]),
        ('{"step":1,"loss":1.5}', [1.5]),
        ("Loss 3", [3.0]),
        ("lossless 3", []),
    ],
)
def test_losses_in_any_log(log: str, told: list[float]) -> None:
    assert losses(log) == told


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("loss 2\nloss 1", None),
        ("done", "it tells 0 losses; a run that trains tells at least 2"),
        ("loss 1\nloss nan", "1 of 2 losses are not finite"),
        ("loss 1\nloss 1\nloss 2", "its loss never fell below the first, 1, in 3"),
        ("Resuming from epoch 12\nloss 2\nloss 1", "it did not begin fresh: 'Resuming from epoch 12'"),
    ],
)
def test_what_speaks_against_a_log(log: str, words: str | None) -> None:
    assert log_faults(log) == ([words] if words else [])
