"""A user's machine, laid out as folders, and what NVML says on it."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml, pci
from pytest_cudaboot.report.doctor import Places, doctor
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
