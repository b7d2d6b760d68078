"""Two cards that NVML names: each worker is pinned to one, for its whole life and that of its replacement."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.run.gate import PATH, Gate

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
BOX = f"""
from pathlib import Path
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml, pci

def gpu(index, uuid):
    pci = f"00000000:0{{index + 1}}:00.0"
    return Gpu(index=index, uuid=uuid, name="L4", capability=(8, 9), memory=1 << 34, pci=pci)

VIEW = nvml.NvmlView(gpus=(gpu(0, "{A}"), gpu(1, "{B}")), driver="580.65", cuda=13000)
nvml.look = lambda: VIEW
pci.cards = lambda root: tuple(pci.PciCard(address=f"0000:0{{n}}:00.0", minor=n) for n in (1, 2))
"""
TESTS = f"""
import os, pytest

def where():
    return os.environ["CUDA_VISIBLE_DEVICES"]

@pytest.mark.spec("c.first")
def test_first(gpu, measure):
    measure(**{{where(): os.getpid()}})
    assert gpu.uuid == where()
    if where() == "{A}":
        os._exit(1)

@pytest.mark.spec("c.again")
def test_again(gpu, measure):
    measure(**{{where(): os.getpid()}})
    assert gpu.uuid == where()

@pytest.mark.spec("c.host")
def test_host(run, gpus):
    assert where() == run(["sh", "-c", "printf %s $CUDA_VISIBLE_DEVICES"]).stdout == ""
    assert [gpu.uuid for gpu in gpus] == ["{A}", "{B}"]

@pytest.mark.spec("c.command")
def test_command(run, gpu):
    shown = run(["sh", "-c", "printf %s $CUDA_VISIBLE_DEVICES"]).stdout
    hidden = run(["sh", "-c", "printf %s $CUDA_VISIBLE_DEVICES"], device=False).stdout
    assert (shown, hidden) == (gpu.uuid, "")

@pytest.mark.spec("c.real")
def test_real(lowerer, gpu):
    assert lowerer.call("prove") == [gpu.uuid]
"""
CATALOG = "\n".join(
    f'[c.{name}]\nkind = "step"\ntitle = "T"\nheading = "Cards"\non = "{place}"\n{more}\n'
    for name, place, more in [
        ("first", "each", ""),
        ("host", "host", ""),
        ("command", "any", ""),
        ("real", "each", 'lowerers = ["xla"]'),
        ("again", "each", 'needs = ["c.first"]'),
    ]
)
WAIVED = (
    '[[waiver]]\nspec = "c.first"\nreason = "the crash is the point"\nowner = "me"\nexpires = 2999-01-01\n'
)


@pytest.fixture
def box(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    (gate.path / "two_cards.py").write_text(BOX)
    (gate.path / "cudaboot-waivers.toml").write_text(WAIVED)
    for source, made in (("masked_cuda.c", "libcuda.so.1"), ("tiny_cuda.c", "plugin.so")):
        line = f"gcc -Wall -Wextra -Werror -shared -fPIC {Path(__file__).with_name(source)} -o {gate.path / made}"
        subprocess.run(["/usr/bin/env", *line.split()], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(gate.path))
    monkeypatch.setenv("PJRT_PLUGIN", str(gate.path / "plugin.so"))
    monkeypatch.setenv("PYTHONPATH", f"{gate.path}:{PATH}")
    return gate.suite(TESTS, CATALOG)


def cpu_plugin() -> str:
    """A real plugin, which knows of no card."""
    from importlib.resources import files

    return str(files("xla_plugins.xla_cpu_pjrt") / "xla_cpu_pjrt.so")


def test_each_worker_keeps_its_card_across_a_crash(box: Gate) -> None:
    result = box.away("-v", "-p", "two_cards", gpus="0,1")

    cells = {(cell["spec"], *(gpu["uuid"] for gpu in cell["gpus"])): cell for cell in box.verdict["cells"]}
    assert {key: cell["outcome"] for key, cell in cells.items() if len(key) == 2 or key[0] == "c.host"} == {
        ("c.first", A): "waived",
        ("c.first", B): "holds",
        ("c.again", A): "holds",
        ("c.again", B): "holds",
        ("c.real", A): "holds",
        ("c.real", B): "holds",
        ("c.host",): "holds",
    }
    assert box.outcomes["c.command"] == "holds"
    assert cells["c.again", A]["measurements"].keys() == {A}
    assert cells["c.again", B]["measurements"].keys() == {B}
    assert cells["c.first", A]["blame"] == "card"
    replaced = {record["worker"] for record in box.records("result") if record["gpu"] == A}
    assert len(replaced) == 2
    result.stdout.fnmatch_lines([f"cudaboot: card 1 = {B} L4 at 00000000:02:00.0, driver 580.65"])
    assert (result.ret, box.verdict["verdict"]) == (0, "accept")


def test_a_pin_that_does_not_hold_spoils_everything(box: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKED_CUDA_LIES", "1")
    result = box.away("-p", "two_cards", "-k", "real", gpus="1")

    assert result.ret == box.verdict["exit"] == 13
    assert box.verdict["verdict"] == "environment"
    assert f"but was pinned to ['{B}']" in box.verdict["reasons"][0]


def test_a_cpu_plugin_on_a_card_spoils_everything(box: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_PLUGIN", cpu_plugin())
    result = box.away("-p", "two_cards", "-k", "real", gpus="1")

    assert (result.ret, box.verdict["verdict"]) == (13, "environment")
    assert "runs on platform 'cpu', and this run is on 'cuda'" in box.verdict["reasons"][0]


def test_two_cards_need_workers(box: Gate) -> None:
    result = box.away("-p", "two_cards", "-n", "0", gpus="all")

    assert result.ret == box.verdict["exit"] == 4
    assert box.verdict["reasons"] == [
        "--gpus names 2 cards, and without workers there is one process for one"
    ]


def test_one_card_in_this_process(box: Gate) -> None:
    result = box.away("-p", "two_cards", "-n", "0", "-k", "again or command or real", gpus=B[:8])

    assert result.ret == 12
    assert {spec: [gpu["uuid"] for gpu in cell["gpus"]] for spec, cell in box.cells.items()} == {
        "c.first": [B],
        "c.host": [],
        "c.command": [],
        "c.real": [B],
        "c.again": [B],
    }
    assert [box.outcomes[spec] for spec in ("c.command", "c.real", "c.again")] == ["holds"] * 3
