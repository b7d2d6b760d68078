"""The plugin's allocator lines as they were seen, and the sum of what clients ask for on one card."""

from __future__ import annotations

from pytest_cudaboot.rules.reservation import Announcement, announcements, refusal

SEEN = """\
I0000 00:00:1.1 1 se_gpu_pjrt_client.cc:1] Using BFC allocator.
I0000 00:00:1.2 1 gpu_helpers.cc:1] XLA backend allocating 104.85GiB (112583507968 bytes) on device 0 for BFCAllocator.
I0000 00:00:1.3 1 gpu_helpers.cc:1] XLA backend will use up to 34.95GiB (37527835 bytes) on device 1 for CollectiveBFCAllocator.
"""
TOTAL = 150_111_343_616


def test_lines_are_read_as_the_plugin_writes_them() -> None:
    assert announcements(SEEN) == [
        Announcement(bytes=112583507968, device=0, allocator="BFCAllocator", up_front=True),
        Announcement(bytes=37527835, device=1, allocator="CollectiveBFCAllocator", up_front=False),
    ]


def test_a_reworded_line_is_no_line() -> None:
    assert announcements("XLA reserves 104.85GiB (112583507968 bytes) on device 0") == []


def test_a_free_card_takes_any_fraction() -> None:
    assert refusal(total=TOTAL, used=0, fraction=1.0) is None
    assert refusal(total=TOTAL, used=TOTAL // 4, fraction=0.75) is None


def test_two_default_clients_are_more_than_a_card() -> None:
    words = refusal(total=TOTAL, used=112583507968, fraction=0.75)

    assert words is not None
    assert (
        "0.75 of the card is asked for, and 0.75 of it (112583507968 bytes) is in use: together 1.50" in words
    )
    assert "LEAN_MLIR_MEM_FRACTION" in words
