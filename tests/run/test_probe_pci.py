"""The bus's word on cards, over trees of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cudaboot.probes.pci import PciCard, cards, in_container, normalized
from tests.run.trees import AMD, AUDIO, BRIDGE, NVIDIA, VGA, Tree

FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_machine_without_a_bus_has_no_cards(tree: Tree) -> None:
    assert cards(tree.root) == ()


def test_only_display_functions_of_one_vendor_are_cards(tree: Tree) -> None:
    tree.card(SECOND, 1)
    tree.card(FIRST, 0, kind=VGA)
    tree.device("0000:01:00.1", NVIDIA, AUDIO)
    tree.device("0000:05:00.0", NVIDIA, BRIDGE)
    tree.device("0000:06:00.0", AMD, VGA)

    assert cards(tree.root) == (PciCard(address=FIRST, minor=0), PciCard(address=SECOND, minor=1))


def test_a_card_without_a_driver_is_a_card(tree: Tree) -> None:
    tree.device(FIRST, NVIDIA, VGA)

    assert cards(tree.root) == (PciCard(address=FIRST, minor=None),)


MARKS = [
    (".dockerenv", ""),
    ("run/.containerenv", ""),
    ("run/systemd/container", "lxc"),
    ("run/secrets/kubernetes.io/serviceaccount/token", ""),
    ("proc/self/mounts", "proc /proc proc rw 0 0\noverlay / overlay rw,lowerdir=/a 0 0\n"),
]


@pytest.mark.parametrize(("mark", "text"), MARKS, ids=[mark for mark, _ in MARKS])
def test_a_container_has_the_cards_that_it_was_given(tree: Tree, mark: str, text: str) -> None:
    tree.card(FIRST, 0, node=False)
    tree.card(SECOND, 1)
    assert [card.minor for card in cards(tree.root)] == [None, 1]

    tree.touch(mark, text)

    assert in_container(tree.root)
    assert cards(tree.root) == (PciCard(address=SECOND, minor=1),)


def test_a_disk_as_root_is_no_container(tree: Tree) -> None:
    tree.touch("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\noverlay /var/lib/docker/x overlay rw 0 0\n")

    assert not in_container(tree.root)


def test_both_spellings_of_an_address_are_one() -> None:
    assert normalized("00000000:0A:00.0") == normalized("0000:0a:00.0") == "0000:0a:00.0"
    assert normalized("00010000:01:00.0") == "10000:01:00.0"
