"""How long things took before: a file in the user's cache that several runs may read and write at once.

It is a help and no evidence: what can not be read or written costs a word, never a run.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import filelock
import platformdirs

NAME = "durations.json"
VARIABLE = "CUDABOOT_HISTORY"
KEPT = 5  # durations of one thing
THINGS = 5_000  # of which the ones that were seen last are kept
PATIENCE = 2.0  # seconds for another run to finish its writing
Key = tuple[str, ...]


def default_folder(environ: Mapping[str, str]) -> Path:
    """Where this user's runs remember, or what `CUDABOOT_HISTORY` names."""
    named = environ.get(VARIABLE)
    return Path(named).absolute() if named else platformdirs.user_cache_path("cudaboot")


class History:
    """What was remembered when it was read; what is learnt is added to whatever is in the file by then.

    :param complaint: why nothing is remembered, in a few words, or null.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.complaint: str | None = None
        try:
            self._known = _read(self.path)
        except (OSError, ValueError) as error:
            self._known = {}
            self.complaint = (
                f"what {str(self.path)!r} says of durations can not be read, and is ignored: {error}"
            )

    def typical(self, key: Key) -> float | None:
        """Seconds that it usually took, or None."""
        seen = self._known.get(_name(key))
        return median(seen) if seen else None

    def longest(self, keys: Iterable[Key]) -> float | None:
        """Seconds that any of these took at most, or None."""
        return max((max(self._known[name]) for name in map(_name, keys) if name in self._known), default=None)

    def learn(self, durations: Mapping[Key, float]) -> str | None:
        """Add what was seen.

        :returns: why it could not be written, or None.
        """
        if not durations:
            return None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self.path.with_suffix(".lock"), timeout=PATIENCE):
                _write(self.path, _merged(self.path, durations))
        except (OSError, filelock.Timeout) as error:
            return f"durations are not remembered: {error}"
        return None


def _merged(path: Path, durations: Mapping[Key, float]) -> dict[str, list[float]]:
    """The newest last, so that what was not seen for long is dropped first."""
    known: dict[str, list[float]] = {}
    with suppress(OSError, ValueError):  # a broken file has nothing to add, and is replaced
        known = _read(path)
    for key, seconds in durations.items():
        seen = known.pop(_name(key), [])
        known[_name(key)] = [*seen, round(seconds, 3)][-KEPT:]
    return dict(list(known.items())[-THINGS:])


def _read(path: Path) -> dict[str, list[float]]:
    """:raises ValueError: if it is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    data = json.loads(text)
    if not isinstance(data, dict) or not all(map(_durations, data.values())):
        raise ValueError("it is no table of durations")
    return data


def _durations(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(one, int | float) and math.isfinite(one) and one >= 0 for one in value)
    )


def _write(path: Path, known: Mapping[str, Sequence[float]]) -> None:
    """Whole or not at all; the lock is held, so the scratch file is nobody else's."""
    scratch = path.with_suffix(".tmp")
    with scratch.open("w", encoding="utf-8") as stream:
        json.dump(known, stream)
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(path)


def _name(key: Key) -> str:
    return "·".join(key)
