"""What the doctor says of cards, driver, tools, disks and leases, and what it tells to do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.probes.lease import acquire
from pytest_cudaboot.report.doctor import examine
from pytest_cudaboot.rules.cuda_libraries import cuda_libraries
from tests.report.machine import ABSENT, ON_BUS, TWO, A, B, Machine


def test_a_box_that_lacks_nothing(whole: Machine) -> None:
    status, lines = whole.asked()

    assert status == 0
    stopped = {what for what, line in lines.items() if line["needed"] and line["state"] != "found"}
    assert stopped == set()
    assert lines["driver"]["detail"] == "580.65, CUDA 13.0"
    assert lines["cards"]["detail"] == (f"0 = {A} L4 at 00000000:01:00.0\n1 = {B} L4 at 00000000:02:00.0")
    assert lines["libcudart.so.13"]["detail"].endswith("nvidia/all/lib/libcudart.so.13 (RPATH)")


def test_in_the_order_in_which_one_thing_needs_another(whole: Machine) -> None:
    order = list(whole.asked()[1])
    libraries = [library.soname for library in cuda_libraries(13)]

    assert order == [
        *("driver", "cards", "bus", "cuda plugin"),
        *libraries,
        *("cpu plugin", "gcc", "iree-compile", "lake", "disk: builds", "disk: project", "leases"),
    ]


def test_a_machine_without_a_card_needs_the_cpu_plugin_and_no_driver(machine: Machine) -> None:
    status, lines = machine.asked()
    machine.cpu_plugin()

    assert status == 1
    assert {what for what, line in lines.items() if line["needed"] and line["state"] != "found"} == {
        "cpu plugin"
    }
    assert lines["cpu plugin"]["fix"] == "python -m pip install xla-cpu-pjrt"
    assert machine.asked()[0] == 0


def test_a_card_without_a_driver(whole: Machine) -> None:
    status, lines = whole.nvml(ABSENT, ON_BUS).asked()

    assert status == 1
    assert (lines["driver"]["state"], lines["driver"]["detail"]) == (
        "missing",
        "NVML: NVML Shared Library Not Found",
    )
    assert "nvidia driver" in lines["driver"]["fix"]
    assert (lines["cards"]["state"], lines["cards"]["needed"]) == ("missing", True)


def test_a_driver_that_does_not_match_its_library(whole: Machine) -> None:
    status, lines = whole.nvml(BoxError("NVML fails: Driver/library version mismatch"), ON_BUS).asked()

    assert status == 1
    assert (lines["driver"]["state"], lines["driver"]["detail"]) == (
        "wrong",
        "NVML fails: Driver/library version mismatch",
    )
    assert "sudo modprobe nvidia" in lines["driver"]["fix"]


def test_a_card_that_the_bus_has_and_nvml_does_not_name(whole: Machine) -> None:
    status, lines = whole.nvml(replace(TWO, gpus=TWO.gpus[:1]), ON_BUS).asked()

    assert status == 1
    assert lines["bus"]["detail"] == "NVML does not name 0000:02:00.0, which the PCI bus has"


@pytest.mark.parametrize("mask", ["", "7", "GPU-none"])
def test_a_mask_that_leaves_no_card(whole: Machine, mask: str) -> None:
    whole.environ["CUDA_VISIBLE_DEVICES"] = mask
    status, lines = whole.asked()

    assert (status, lines["cards"]["state"], lines["cards"]["fix"]) == (
        1,
        "wrong",
        "unset CUDA_VISIBLE_DEVICES",
    )
    assert f"CUDA_VISIBLE_DEVICES={mask!r} leaves: none" in lines["cards"]["detail"]


def test_what_a_mask_hides_is_said(whole: Machine) -> None:
    whole.environ["CUDA_VISIBLE_DEVICES"] = "1"

    assert whole.asked()[1]["cards"]["detail"].splitlines() == [
        f"1 = {B} L4 at 00000000:02:00.0",
        "1 more behind CUDA_VISIBLE_DEVICES='1'",
    ]


def test_a_card_in_mig_mode(whole: Machine) -> None:
    status, lines = whole.nvml(replace(TWO, mig=(B,)), ON_BUS).asked()

    assert (status, lines["cards"]["fix"]) == (1, f"sudo nvidia-smi -i {B} -mig 0")
    whole.environ["CUDA_VISIBLE_DEVICES"] = "0"
    assert whole.asked()[0] == 0


def test_without_gcc_no_shim_can_be_built(whole: Machine) -> None:
    (whole.root / "bin/gcc").unlink()
    status, lines = whole.asked()

    assert (status, lines["gcc"]["state"]) == (1, "missing")
    assert lines["gcc"]["fix"].startswith("apt install gcc libc6-dev")


def test_the_projects_own_compiler_before_that_on_the_path(whole: Machine) -> None:
    whole.file("bin/iree-compile", 0o755)
    assert whole.asked()[1]["iree-compile"]["detail"] == f"{whole.root}/bin/iree-compile (PATH)"

    own = whole.file(".venv/bin/iree-compile", 0o755)
    info = whole.site / "iree_base_compiler-3.13.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("../../../bin/iree-compile,sha256=x,1\n")
    (info / "METADATA").write_text("Name: iree-base-compiler\nVersion: 3.13.0\n")
    assert whole.asked()[1]["iree-compile"]["detail"] == f"{own} (3.13.0, the project's .venv)"


def test_lean_where_elan_puts_it(whole: Machine) -> None:
    whole.file("home/.elan/bin/lake", 0o755)
    whole.file("lean-toolchain").write_text("leanprover/lean4:v4.31.0\n")
    lake = f"{whole.root}/home/.elan/bin/lake"
    detail = f"{lake} (leanprover/lean4:v4.31.0, fetched at the first call)"
    assert whole.asked()[1]["lake"]["detail"] == detail

    whole.file("home/.elan/toolchains/leanprover--lean4---v4.31.0/bin/lean")
    assert whole.asked()[1]["lake"]["detail"] == f"{lake} (leanprover/lean4:v4.31.0, installed)"


def test_a_disk_that_is_full(whole: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=300 << 20))
    status, lines = whole.asked()

    assert (status, lines["disk: builds"]["state"]) == (1, "wrong")
    assert lines["disk: project"]["detail"] == f"only 0.3 GiB free in {whole.root}"


def test_a_disk_that_will_do_for_the_gate_but_not_for_lean(
    whole: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=30 << 30))
    status, lines = whole.asked()

    assert status == 0
    assert lines["disk: project"]["detail"].endswith("; Lean's libraries and a build of IREE want 50")


def test_a_folder_that_can_not_be_written(whole: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    status, lines = whole.asked()

    assert (status, lines["disk: project"]["state"]) == (1, "wrong")
    assert lines["disk: project"]["detail"] == f"{whole.root} can not be written by this user"


def test_a_leased_card_is_told_with_its_holder(whole: Machine) -> None:
    with acquire([B], folder=whole.root / "leases"):
        status, lines = whole.asked()
        whole.environ["CUDA_VISIBLE_DEVICES"] = "0"
        assert whole.asked()[0] == 0

    assert (status, lines["leases"]["state"]) == (1, "held")
    assert lines["leases"]["detail"].startswith(f"{B} is leased by pid ")
    assert lines["leases"]["fix"] == "pytest --gpus auto --cudaboot-wait 600"


def test_a_lease_folder_that_can_not_be_trusted(whole: Machine) -> None:
    (whole.root / "leases").touch()
    status, lines = whole.asked()

    assert (status, lines["leases"]["state"]) == (1, "wrong")
    assert "can not open the lease folder" in lines["leases"]["detail"]


def test_to_look_leaves_nothing_behind(whole: Machine) -> None:
    before = sorted(whole.root.rglob("*"))
    examine(whole.places)

    assert sorted(whole.root.rglob("*")) == before


def test_what_is_printed_can_be_pasted(machine: Machine) -> None:
    machine.nvml(TWO, ON_BUS).plugin(12)
    machine.libraries(12, but="libcudart")
    (machine.site / "nvidia/all/lib/libcudnn.so.9").unlink()
    printed = machine.printed()

    todo = printed.partition("to do first, in this order:\n")[2].splitlines()[0]
    python = f"{machine.root}/.venv/bin/python"
    assert todo == f"  {python} -m pip install nvidia-cuda-runtime-cu12 nvidia-cudnn-cu12"
    assert printed.splitlines()[-1] == "not ready for `pytest --gpus auto`"


def test_what_is_not_needed_is_told_in_short(machine: Machine) -> None:
    machine.cpu_plugin()
    printed = machine.printed()

    assert "tried, in order" not in printed
    assert "\nnot needed for it:\n" in printed
    assert printed.splitlines()[-1] == "ready for `pytest --gpus auto`"


def test_no_program_is_run(whole: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen", none)
    monkeypatch.setattr("os.posix_spawn", none)

    assert whole.asked()[0] == 0
