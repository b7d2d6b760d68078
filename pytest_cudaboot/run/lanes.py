"""The lanes of a run: host work beside cards. A worker learns its lane from its environment."""

from __future__ import annotations

HOST = "host"
CARD = "card"  # any card
LANE_VARIABLE = "CUDABOOT_LANE"  # `host`, or the UUID of the worker's card
