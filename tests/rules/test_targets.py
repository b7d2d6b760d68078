"""A module's PTX against a card: what the driver would refuse is refused before it is loaded, with the way out."""

from __future__ import annotations

import pytest

from pytest_cudaboot.errors import TargetError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.rules.targets import chip_of, cuda_of, documented_capability, read_ptx, require_loadable

H200 = Gpu(
    index=0, uuid="GPU-a", name="NVIDIA H200", capability=(9, 0), memory=1 << 37, pci="00000000:01:00.0"
)
ENTRIES = b".visible .entry add_dispatch_0_f32(\n.visible .entry add_dispatch_1_f32("


def module(chip: str, version: str = "7.6") -> dict[str, bytes]:
    """Parts as a compiled module has them."""
    ptx = b"\0\x08CUDA//\n.version " + version.encode() + b"\n.target " + chip.encode() + b"\n" + ENTRIES
    return {"module.fb": b"\0.target\0", "f_dispatch_0_cuda_nvptx_fb.fb": ptx}


def test_each_executable_tells_target_language_and_kernels() -> None:
    (ptx,) = read_ptx(module("sm_86"))

    assert (ptx.part, ptx.target, ptx.version) == ("f_dispatch_0_cuda_nvptx_fb.fb", "sm_86", (7, 6))
    assert ptx.entries == ("add_dispatch_0_f32", "add_dispatch_1_f32")


@pytest.mark.parametrize("chip", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"])
def test_ptx_is_compiled_forward(chip: str) -> None:
    require_loadable(module(chip), H200, driver_cuda=13000)


@pytest.mark.parametrize("chip", ["sm_100", "sm_120", "sm_89a", "sm_120f"])
def test_ptx_is_never_compiled_back(chip: str) -> None:
    words = rf"nvptx_fb.fb is for {chip}, and NVIDIA H200 is sm_90: .*IREE_CHIP=sm_90 or an older one"
    with pytest.raises(TargetError, match=words):
        require_loadable(module(chip), H200)


def test_a_newer_language_than_the_drivers_is_refused() -> None:
    require_loadable(module("sm_86", "8.7"), H200, driver_cuda=12080)
    with pytest.raises(
        TargetError, match=r"is PTX 8\.7, which needs a driver for CUDA 12\.8, and this one is for 12\.4"
    ):
        require_loadable(module("sm_86", "8.7"), H200, driver_cuda=12040)
    with pytest.raises(
        TargetError, match=r"PTX 12\.0, which needs a driver for CUDA of a later day than this table"
    ):
        require_loadable(module("sm_86", "12.0"), H200, driver_cuda=13000)


def test_a_module_without_kernels_runs_anywhere() -> None:
    require_loadable({"module.fb": b"IREE, and nothing to compute"}, H200)


def test_a_module_for_another_device_has_no_ptx() -> None:
    with pytest.raises(TargetError, match=r"has no PTX, so it is not for NVIDIA H200"):
        require_loadable({"module.fb": b"", "f_embedded_elf_x86_64.so": b"\x7fELF"}, H200)


@pytest.mark.parametrize(
    ("version", "cuda"), [((6, 0), 10000), ((7, 6), 11060), ((8, 5), 12050), ((8, 8), 12090), ((9, 0), 13000)]
)
def test_ptx_and_cuda_are_numbered_apart(version: tuple[int, int], cuda: int) -> None:
    assert cuda_of(version) == cuda


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("NVIDIA A100-SXM4-80GB", "sm_80"),
        ("NVIDIA A30", "sm_80"),
        ("NVIDIA GeForce RTX 3090 Ti", "sm_86"),
        ("NVIDIA RTX A6000", "sm_86"),
        ("NVIDIA A40", "sm_86"),
        ("NVIDIA GeForce RTX 4060 Ti", "sm_89"),
        ("NVIDIA RTX 6000 Ada Generation", "sm_89"),
        ("NVIDIA L40S", "sm_89"),
        ("NVIDIA H100 80GB HBM3", "sm_90"),
        ("NVIDIA H200", "sm_90"),
        ("NVIDIA B200", "sm_100"),
        ("NVIDIA GeForce RTX 5090", "sm_120"),
    ],
)
def test_the_card_table(name: str, chip: str) -> None:
    capability = documented_capability(name)

    assert capability is not None
    assert chip_of(capability) == chip


def test_a_model_of_tomorrow_is_not_in_the_table() -> None:
    assert documented_capability("NVIDIA Z900") is None
