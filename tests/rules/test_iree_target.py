"""What IREE compiles for: the run decides the backend, and a variable that means nothing is refused by its name."""

from __future__ import annotations

import pytest

from pytest_cudaboot.errors import TargetError
from pytest_cudaboot.rules.iree_target import Target, choose_device, choose_target, cuda_target


def test_the_default_chip_is_sm_86() -> None:
    assert choose_target("cuda", {}) == Target(backend="cuda", chip="sm_86")


def test_a_target_is_two_words_for_the_compiler() -> None:
    assert choose_target("cuda", {"IREE_CHIP": "sm_80"}).flags == (
        "--iree-hal-target-backends=cuda",
        "--iree-cuda-target=sm_80",
    )
    assert choose_target("cpu", {}).flags == (
        "--iree-hal-target-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=generic",
    )


def test_a_shells_leftover_does_not_change_the_runs_platform() -> None:
    leftover = {"IREE_BACKEND": "cuda", "IREE_CHIP": "sm_90", "IREE_DEVICE": "cuda"}

    assert str(choose_target("cpu", leftover)) == "llvm-cpu/generic"
    assert choose_device("cpu", leftover) == "local-task"


@pytest.mark.parametrize("platform", ["cuda", "cpu"])
@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (
            "IREE_BACKEND",
            "",
            r"IREE_BACKEND='' is set to the empty string.*unset it; it is one of cuda, llvm-cpu",
        ),
        ("IREE_BACKEND", "tpu", r"IREE_BACKEND='tpu' means nothing; it is one of cuda, llvm-cpu"),
        ("IREE_CHIP", "", r"IREE_CHIP='' is set to the empty string"),
        ("IREE_CHIP", "ada", r"IREE_CHIP='ada' means nothing; a chip is written sm_86"),
        ("IREE_CHIP", "sm_8", r"IREE_CHIP='sm_8' means nothing"),
    ],
)
def test_nonsense_is_refused_by_name(platform: str, variable: str, value: str, words: str) -> None:
    with pytest.raises(TargetError, match=f"^Step 4: {words}"):
        choose_target(platform, {variable: value})


@pytest.mark.parametrize("value", ["", "gpu", "cuda0"])
def test_a_device_that_is_none_is_refused_by_name(value: str) -> None:
    with pytest.raises(TargetError, match=rf"IREE_DEVICE='{value}' .*; it is one of cuda, local-task"):
        choose_device("cuda", {"IREE_DEVICE": value})


@pytest.mark.parametrize("chip", ["sm_80", "sm_120", "sm_90a", "sm_999"])
def test_what_is_written_like_a_chip_is_the_compilers_to_judge(chip: str) -> None:
    assert cuda_target(chip).chip == chip
