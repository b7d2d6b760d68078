"""NVML's word, with its functions replaced: what is asked, and what each refusal means."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from pytest_cudaboot.errors import BoxError
from pytest_cudaboot.model import Gpu
from pytest_cudaboot.probes import nvml

A = Gpu(index=0, uuid="GPU-a", name="H200", capability=(9, 0), memory=150, pci="00000000:01:00.0")
B = Gpu(index=1, uuid="GPU-b", name="L4", capability=(8, 9), memory=24, pci="00000000:02:00.0")


class FakeNvml:
    """The functions that a look calls; a handle is the card itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *cards: Gpu) -> None:
        self.patch, self.cards = monkeypatch, cards
        self.open = 0
        for name, answer in {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlDeviceGetCount": lambda: len(cards),
            "nvmlDeviceGetHandleByIndex": lambda index: cards[index],
            "nvmlDeviceGetUUID": lambda card: card.uuid,
            "nvmlDeviceGetName": lambda card: card.name,
            "nvmlDeviceGetCudaComputeCapability": lambda card: list(card.capability),
            "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(total=card.memory),
            "nvmlDeviceGetPciInfo": lambda card: SimpleNamespace(busId=card.pci),
            "nvmlDeviceGetMigMode": self.failing(pynvml.NVML_ERROR_NOT_SUPPORTED),
            "nvmlSystemGetDriverVersion": lambda: "580.65",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        }.items():
            self.answer(name, answer)

    def answer(self, name: str, function: Any) -> None:
        self.patch.setattr(pynvml, name, function)

    @staticmethod
    def failing(code: int) -> Any:
        def fail(*_: object) -> None:
            raise pynvml.NVMLError(code)

        return fail

    def _init(self) -> None:
        self.open += 1

    def _shutdown(self) -> None:
        self.open -= 1


def test_two_cards_and_their_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(monkeypatch, A, B)

    assert nvml.look() == nvml.NvmlView(gpus=(A, B), driver="580.65", cuda=13000)
    assert fake.open == 0


def test_a_card_in_mig_mode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(monkeypatch, A, B)
    modes = {A: [1, 1], B: [0, 1]}
    fake.answer("nvmlDeviceGetMigMode", lambda card: modes[card])

    assert nvml.look().mig == ("GPU-a",)


def test_a_card_that_a_container_may_not_touch_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(monkeypatch, A, B)
    refuse = fake.failing(pynvml.NVML_ERROR_NO_PERMISSION)
    fake.answer("nvmlDeviceGetHandleByIndex", lambda index: B if index == 1 else refuse())

    assert (nvml.look().gpus, nvml.look().denied) == ((B,), 1)


def test_a_chip_that_shares_the_machines_memory_has_none_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(monkeypatch, A)
    fake.answer("nvmlDeviceGetMemoryInfo", fake.failing(pynvml.NVML_ERROR_NOT_SUPPORTED))

    (gpu,) = nvml.look().gpus
    assert (gpu.uuid, gpu.memory) == ("GPU-a", 0)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_driver_is_an_answer(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    fake = FakeNvml(monkeypatch)
    fake.answer("nvmlInit", fake.failing(code))

    assert nvml.look() == nvml.NvmlView(absence=str(pynvml.NVMLError(code)))


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("nvmlInit", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "version mismatch"),
        ("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_GPU_IS_LOST, "GPU is lost"),
        ("nvmlDeviceGetUUID", pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
    ],
)
def test_a_driver_that_fails_is_a_broken_box(
    monkeypatch: pytest.MonkeyPatch, function: str, code: int, words: str
) -> None:
    fake = FakeNvml(monkeypatch, A)
    fake.answer(function, fake.failing(code))

    with pytest.raises(BoxError, match=rf"NVML fails: .*{words}.*; `nvidia-smi` shows more"):
        nvml.look()
    assert fake.open == 0


def test_the_memory_in_use_is_of_the_card_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(monkeypatch, A, B)
    fake.answer("nvmlDeviceGetMemoryInfo", lambda card: SimpleNamespace(used={A: 7, B: 9}[card]))

    assert [nvml.memory_used(uuid) for uuid in ("GPU-a", "GPU-b", "GPU-c")] == [7, 9, None]
    assert fake.open == 0


def test_memory_that_is_not_told_is_unobservable(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(monkeypatch, A)
    fake.answer("nvmlDeviceGetMemoryInfo", fake.failing(pynvml.NVML_ERROR_NOT_SUPPORTED))

    assert nvml.memory_used("GPU-a") is None
