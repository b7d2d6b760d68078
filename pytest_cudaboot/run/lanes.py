"""The lanes of a run: host work beside cards. A worker learns its lane from its environment."""

from __future__ import annotations

from typing import Any

from pytest_cudaboot.rules.timetable import CARD, HOST

__all__ = ["CARD", "HOST", "LANE_VARIABLE", "lane_of"]

LANE_VARIABLE = "CUDABOOT_LANE"  # `host`, or the UUID of the worker's card


def lane_of(spec: Any) -> str:
    """The lane that an xdist spec was given."""
    return str(spec.env[LANE_VARIABLE])
