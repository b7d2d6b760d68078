"""What the doctor says of the CUDA plugin and of each library that it will look for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.machine import ON_BUS, TWO, Machine


@pytest.mark.parametrize(("cuda", "package"), [(13000, "jax-cuda13-pjrt"), (12090, "jax-cuda12-pjrt")])
def test_no_plugin_is_told_with_the_one_that_the_driver_supports(
    machine: Machine, cuda: int, package: str
) -> None:
    status, lines = machine.nvml(replace(TWO, cuda=cuda), ON_BUS).asked()

    assert status == 1
    assert lines["cuda plugin"]["fix"] == f"{machine.root}/.venv/bin/python -m pip install {package}"
    assert "(the project's .venv)" in lines["cuda plugin"]["detail"]
    assert "libcudart.so.13" not in lines


def test_a_plugin_that_is_too_new_for_the_driver(whole: Machine) -> None:
    status, lines = whole.nvml(replace(TWO, cuda=12090), ON_BUS).asked()

    assert status == 1
    assert lines["cuda plugin"]["state"] == "wrong"
    assert lines["cuda plugin"]["detail"].endswith("wants CUDA 13, and the driver goes up to 12.9")


@pytest.mark.parametrize(
    ("major", "stem", "package"),
    [
        (12, "libcudart", "nvidia-cuda-runtime-cu12"),
        (12, "libcudnn", "nvidia-cudnn-cu12"),
        (13, "libcublasLt", "'nvidia-cublas==13.*'"),
        (13, "libnvJitLink", "'nvidia-nvjitlink==13.*'"),
        (13, "libcudnn", "nvidia-cudnn-cu13"),
    ],
)
def test_a_library_that_is_missing_is_named_with_the_line_that_brings_it(
    machine: Machine, major: int, stem: str, package: str
) -> None:
    machine.nvml(TWO, ON_BUS).plugin(major)
    machine.libraries(major, but=stem)
    status, lines = machine.asked()

    assert status == 1
    missing = [line for line in lines.values() if line["state"] == "missing" and line["needed"]]
    assert [line["what"].partition(".so")[0] for line in missing] == [stem]
    assert missing[0]["fix"] == f"{machine.root}/.venv/bin/python -m pip install {package}"


def test_a_library_for_some_programs_only_stops_nothing(machine: Machine) -> None:
    machine.nvml(TWO, ON_BUS).plugin()
    machine.libraries(but="libnccl")
    status, lines = machine.asked()

    assert (status, lines["libnccl.so.2"]["state"], lines["libnccl.so.2"]["needed"]) == (0, "missing", False)
    assert lines["libnccl.so.2"]["detail"].endswith("for several cards in one program")


def test_the_libraries_of_another_cuda_are_no_libraries(machine: Machine) -> None:
    """A plugin for CUDA 12 has trained on a box's CUDA 13 without a word."""
    machine.nvml(TWO, ON_BUS).plugin(12)
    system = machine.link(machine.root / "system/libcudart.so.13")
    machine.environ["LD_LIBRARY_PATH"] = str(system.parent)
    status, lines = machine.asked()

    assert status == 1
    assert f"; only {system} (LD_LIBRARY_PATH): another CUDA's" in lines["libcudart.so.12"]["detail"]


def test_packages_that_overwrite_each_other(whole: Machine) -> None:
    whole.packages("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu13")
    status, lines = whole.asked()

    assert (status, lines["nvidia-cudnn-cu13"]["state"]) == (1, "wrong")
    python = f"{whole.root}/.venv/bin/python"
    assert lines["nvidia-cudnn-cu13"]["fix"] == (
        f"{python} -m pip uninstall -y nvidia-cudnn-cu12 && "
        f"{python} -m pip install --force-reinstall --no-deps nvidia-cudnn-cu13"
    )


def test_a_plugin_that_is_no_library(whole: Machine) -> None:
    whole.environ["PJRT_PLUGIN"] = str(whole.file("mine.so"))
    status, lines = whole.asked()

    assert status == 1
    assert lines["cuda plugin"]["state"] == "missing"
    assert "is not an ELF file" in lines["cuda plugin"]["detail"]


def test_a_named_plugin_finds_its_libraries_on_the_loader_path(whole: Machine) -> None:
    named = whole.link(whole.root / "xla_cuda13/mine.so")
    whole.environ["PJRT_PLUGIN"] = str(named)
    assert whole.asked()[1]["libcudart.so.13"]["fix"] == (
        "export LD_LIBRARY_PATH=...   # the folder of CUDA 13's libraries"
    )

    whole.environ["LD_LIBRARY_PATH"] = str(whole.site / "nvidia/all/lib")
    status, lines = whole.asked()
    assert (status, lines["cuda plugin"]["detail"]) == (0, f"{named} (PJRT_PLUGIN={named})")


def test_a_plugin_that_does_not_say_its_cuda(whole: Machine) -> None:
    whole.environ["PJRT_PLUGIN"] = str(whole.link(whole.root / "mine.so"))

    assert whole.asked()[1]["cuda libraries"]["detail"] == (
        "not known which libraries the plugin looks for: nothing says for which CUDA it was built"
    )


def test_without_a_card_the_plugin_may_lack_anything(machine: Machine) -> None:
    machine.plugin()
    machine.cpu_plugin()
    status, lines = machine.asked()

    assert (status, lines["libcudart.so.13"]["state"]) == (0, "missing")
