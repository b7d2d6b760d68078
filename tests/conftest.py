"""One thread of linear algebra a process: for arrays this small, more of them only wait for each other."""

from __future__ import annotations

import os

# numpy reads it when it is first imported, so that it is set before a test module can do that.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
