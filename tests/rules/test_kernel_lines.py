"""Lines of the kernel's log, in the forms that kernels and drivers write them."""

from __future__ import annotations

import pytest

from pytest_cudaboot.rules.kernel_lines import read_line

CARD, BRIDGE = "0000:01:00.0", "0000:00:01.0"


@pytest.mark.parametrize(
    ("line", "address", "kind"),
    [
        (
            f"nvidia {CARD}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
            CARD,
            "corrected",
        ),
        (
            f"4,8,9,-;pcieport {BRIDGE}: AER: PCIe Bus Error: severity=Correctable, type=Physical Layer",
            BRIDGE,
            "corrected",
        ),
        (
            f"nvidia {CARD}: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            CARD,
            "uncorrected",
        ),
        (
            f"nvidia {CARD}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer",
            CARD,
            "fatal",
        ),
    ],
)
def test_an_error_of_a_link(line: str, address: str, kind: str) -> None:
    event = read_line(line)

    assert event is not None
    assert (event.address, event.kind, event.xid) == (address, kind, None)
    assert event.concerns(address)
    assert not event.concerns("0000:99:00.0")


@pytest.mark.parametrize("pci", ["0000:01:00", "0000:01:00.0", "00000000:01:00"])
def test_an_xid(pci: str) -> None:
    event = read_line(f"NVRM: Xid (PCI:{pci}): 31, pid=4242, name=python, Ch 00000008")

    assert event is not None
    assert (event.kind, event.xid) == ("xid", 31)
    assert event.concerns(CARD)


@pytest.mark.parametrize(
    "line",
    [
        "mce: [Hardware Error]: Machine check events logged",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "[Hardware Error]: Corrected error, no action required.",
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
        f"pcieport {BRIDGE}: AER: enabled with IRQ 24",
        f"pcieport {BRIDGE}: AER: Corrected error received: {CARD}",
        "NVRM: Xid is mentioned without an address",
        "PCIe Bus Error: severity=Corrected",
        "",
    ],
)
def test_a_line_that_says_nothing_of_a_card(line: str) -> None:
    assert read_line(line) is None
