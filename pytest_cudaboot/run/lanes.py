"""The lanes of a run: host work beside cards. A worker learns its lane from its environment."""

from __future__ import annotations

from typing import Any

from pytest_cudaboot.rules.timetable import CARD, HOST

__all__ = ["CARD", "HOST", "LANE_VARIABLE", "lane_of", "name_of"]

LANE_VARIABLE = "CUDABOOT_LANE"  # `host`, or the UUID of the worker's card


def lane_of(spec: Any) -> str:
    """The lane that an xdist spec was given."""
    return str(spec.env[LANE_VARIABLE])


def name_of(node: Any) -> str:
    """What the lane of a node is called: a card's by its UUID, which stays when its worker is replaced."""
    lane = lane_of(node.gateway.spec)
    return str(node.gateway.id) if lane == HOST else lane
