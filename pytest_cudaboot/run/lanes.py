"""The lanes of a run: host work beside cards. A worker learns its lane from its environment."""

from __future__ import annotations

from pytest_cudaboot.rules.timetable import CARD, HOST

__all__ = ["CARD", "HOST", "LANE_VARIABLE"]

LANE_VARIABLE = "CUDABOOT_LANE"  # `host`, or the UUID of the worker's card
