"""What a documented command needs before it could be run. Pure: it reads the line, and runs nothing."""

from __future__ import annotations

import re

RUNS, TRAINS, NET, LEAN, SYSTEM, SETTING, UNKNOWN = (
    *(
        "runs here",
        "trains",
        "needs the net",
        "needs lean",
        "changes the system",
        "sets variables",
        "unknown",
    ),
)
_HARMLESS = (
    *(
        "gcc",
        "clang",
        "cc",
        "make",
        "cmake",
        "ninja",
        "nm",
        "grep",
        "readelf",
        "file",
        "ls",
        "cat",
        "nvidia-smi",
    ),
    *("test", "uname", "which"),
)
# In this order: what reaches out or changes the machine counts before what merely runs.
_CLASSES = (
    (
        SYSTEM,
        r"\bsudo\b|\b(?:apt|apt-get|dnf|yum|systemctl|modprobe|rmmod|reboot|ldconfig)\b|\brm -rf /|>\s*/(?!dev/null)",
    ),
    (LEAN, r"^(?:lake|lean|elan)\b"),
    (NET, r"\bpip3? install\b|\bgit (?:clone|pull|fetch|submodule)\b|^(?:curl|wget|conda|docker)\b"),
    (TRAINS, r"^(?:\./|\.\w+/\S+/)\S+"),
    (RUNS, rf"^(?:{'|'.join(_HARMLESS)}|iree-[\w-]+|python3?)\b"),
    (SETTING, r"^(?:export\b|source\b|\. |cd\b|$)"),
)
_ASSIGNED = re.compile(r"^(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|\S*)\s*)+")


def classify(command: str) -> str:
    """The class of a command: what it would take to run it, or do to the machine."""
    line = re.sub(r"^(?:#.*?)?(?=\S)|\s#.*$", "", command).strip()
    program = _ASSIGNED.sub("", line).strip()
    for name, pattern in _CLASSES:
        if re.search(pattern, program):
            return name
    return UNKNOWN
