"""The doctor on machines that are laid out as folders: what it says of each, and what it tells to do."""

from __future__ import annotations

import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml, pci
from pytest_cudaboot.probes.lease import acquire
from pytest_cudaboot.report.doctor import Places, doctor, examine
from pytest_cudaboot.rules.cuda_libraries import cuda_libraries

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
ABSENT = nvml.NvmlView(absence="NVML Shared Library Not Found")
RPATH = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cuda_runtime/lib:$ORIGIN/../../nvidia/all/lib"
Json = dict[str, Any]


def gpu(index: int, uuid: str) -> Gpu:
    address = f"00000000:0{index + 1}:00.0"
    return Gpu(index=index, uuid=uuid, name="L4", capability=(8, 9), memory=1 << 34, pci=address)


TWO = nvml.NvmlView(gpus=(gpu(0, A), gpu(1, B)), driver="580.65", cuda=13000)
ON_BUS = tuple(pci.PciCard(address=f"0000:0{place}:00.0", minor=place) for place in (1, 2))


class Machine:
    """Folders that look like a user's machine, and what NVML says on it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        self.site = root / ".venv/lib/python3.12/site-packages"
        self.site.mkdir(parents=True)
        self.environ = {
            "PATH": str(root / "bin"),
            "HOME": str(root / "home"),
            "CUDABOOT_LEASE_DIR": str(root / "leases"),
        }
        self.file("bin/gcc", 0o755)
        self.file(".venv/bin/python", 0o755)
        self.nvml(ABSENT)
        monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))

    def nvml(self, view: nvml.NvmlView | BoxError, bus: tuple[pci.PciCard, ...] = ()) -> Machine:
        """What NVML answers, and the cards on the bus."""

        def look() -> nvml.NvmlView:
            if isinstance(view, BoxError):
                raise view
            return view

        self.monkeypatch.setattr(nvml, "look", look)
        self.monkeypatch.setattr(pci, "cards", lambda _root: bus)
        self.monkeypatch.setattr(pci, "in_container", lambda _root: False)
        return self

    def file(self, name: str, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode)
        return path

    def link(self, path: Path, *words: str) -> Path:
        """A small library."""
        path.parent.mkdir(parents=True, exist_ok=True)
        line = ["/usr/bin/env", "gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", str(path), *words]
        subprocess.run(line, check=True)
        return path

    def plugin(self, major: int = 13) -> Path:
        path = self.site / f"jax_plugins/xla_cuda{major}/xla_cuda_plugin.so"
        return self.link(path, RPATH)

    def packages(self, *names: str) -> None:
        for name in names:
            (self.site / f"{name.replace('-', '_')}-1.0.dist-info").mkdir()

    def libraries(self, major: int = 13, but: str = "") -> None:
        """All the libraries that a plugin asks for, or all but those of one stem."""
        first = self.link(self.root / "one.so")
        folder = self.site / "nvidia/all/lib"
        folder.mkdir(parents=True)
        for library in cuda_libraries(major):
            if library.stem != but:
                (folder / library.soname).symlink_to(first)

    def cpu_plugin(self) -> None:
        self.file("packages/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")

    @property
    def places(self) -> Places:
        folders = [self.root / "packages/site-packages"]
        cache = self.root / "ld.so.cache"
        return Places(environ=self.environ, project=self.root, site_packages=folders, cache=cache)

    def asked(self) -> tuple[int, dict[str, Json]]:
        """Exit status, and the lines by what they are about; of several, the last."""
        out = io.StringIO()
        status = doctor(self.places, as_json=True, out=out)
        data = json.loads(out.getvalue())
        assert data["ready"] is (status == 0)
        return status, {line["what"]: line for line in data["lines"]}

    def printed(self) -> str:
        out = io.StringIO()
        doctor(self.places, as_json=False, out=out)
        return out.getvalue()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def whole(machine: Machine) -> Machine:
    """A box of two cards that lacks nothing."""
    machine.nvml(TWO, ON_BUS)
    machine.plugin()
    machine.libraries()
    return machine


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
