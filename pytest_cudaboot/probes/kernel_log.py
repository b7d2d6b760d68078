"""The kernel's log, from now on, where this process may read it. It keeps no line and understands none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

DEVICE = "dev/kmsg"
RECORD = 16384  # bytes; the kernel gives one record a read, and refuses a buffer that is too small for it


class KernelLog:
    """What is written after this was made.

    :param root: the machine's file system.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.absence: str | None = None
        self._file = -1
        self._rest = b""
        try:
            self._file = os.open(root / DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            self.absence = f"/{DEVICE} can not be read ({error.strerror})"
            self.close()

    def lines(self) -> list[str]:
        """The lines that were added since it was asked last."""
        text = self._rest + b"".join(iter(self._read, b""))
        *whole, self._rest = text.split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        """Nothing more is asked."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self) -> bytes:
        """One record; nothing, if there is none yet."""
        while self._file >= 0:
            try:
                return os.read(self._file, RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if (
                    error.errno != errno.EPIPE
                ):  # some were overwritten before they were read, and the next one follows
                    self.close()
        return b""
