"""What every process of ours asks of the kernel, once and first thing: to die with its parent, and to be debugged."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_ANY = ctypes.c_ulong(-1)


def die_with(parent: int) -> None:
    """Have this process killed when the thread that started it ends, even if it ended before this line."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def may_be_debugged() -> None:
    """Let a debugger that is no parent of ours look at us, where the kernel asks for that; elsewhere it is no harm."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
