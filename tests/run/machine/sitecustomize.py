"""A machine of so many processors, whatever this one has: a run without cards has a host worker for each of them.

A gate is given this folder on its `PYTHONPATH`. What is measured of one worker costs the start of one.
"""

import os

PROCESSORS = "GATE_PROCESSORS"


def _affinity(_pid: int) -> set[int]:
    return set(range(int(os.environ[PROCESSORS])))


if PROCESSORS in os.environ:
    os.sched_getaffinity = _affinity
