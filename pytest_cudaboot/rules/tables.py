"""Reads typed values out of a parsed TOML table; it must know nothing of what the values mean."""

from __future__ import annotations

import tomllib
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pytest_cudaboot.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def read_bytes(path: Path) -> bytes:
    """The file's bytes, or a `CatalogError` that names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CatalogError(f"{path}: can not be read: {error.strerror}") from error


def parse_toml(data: bytes, path: Path) -> dict[str, object]:
    """The document as plain data, or a `CatalogError` that names file and line."""
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: is not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{path}: is not TOML: {error}") from error


class Table:
    """One TOML table; every refusal names file, table and key.

    :param where: what the messages start with, `catalog.toml: [step4.run]`.
    """

    def __init__(self, where: str, data: Mapping[str, object], known: Collection[str]) -> None:
        self.where, self._data = where, data
        for key in data:
            if key not in known:
                self.fail(key, f"unknown key; known: {', '.join(known)}")

    def fail(self, key: str, message: str) -> NoReturn:
        raise CatalogError(f"{self.where}: {key}: {message}")

    def text(self, key: str) -> str:
        """A string that is not empty; there is no default."""
        if key not in self._data:
            self.fail(key, "is missing")
        value = self._data[key]
        if not isinstance(value, str) or not value.strip():
            self.fail(key, f"{value!r} is not a text with something in it")
        return value

    def choice(self, key: str, choices: Collection[str]) -> str:
        value = self.text(key)
        if value not in choices:
            self.fail(key, f"{value!r} is not one of {', '.join(choices)}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._data.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"{value!r} is neither true nor false")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self._data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, f"{value!r} is not a number of seconds")
        if not 0 < value < float("inf"):
            self.fail(key, f"{value!r} is not a positive number of seconds")
        return float(value)

    def share(self, key: str) -> float:
        """A number between 0 and 1, neither included; there is no default."""
        value = self._data.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            self.fail(key, f"{value!r} is not a share between 0 and 1")
        return float(value)

    def texts(self, key: str, choices: Collection[str] | None = None) -> tuple[str, ...]:
        """A list of distinct strings, empty where the key is absent."""
        value = self._data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            self.fail(key, f"{value!r} is not a list of texts")
        for number, entry in enumerate(value):
            if choices is not None and entry not in choices:
                self.fail(key, f"{entry!r} is not one of {', '.join(choices)}")
            if entry in value[:number]:
                self.fail(key, f"{entry!r} stands there twice")
        return tuple(value)

    def day(self, key: str) -> date:
        """A TOML date without a time; there is no default."""
        if key not in self._data:
            self.fail(key, "is missing")
        value = self._data[key]
        if not isinstance(value, date) or isinstance(value, datetime):
            self.fail(key, f"{value!r} is not a date; write it bare, 2026-12-31")
        return value

    def has(self, key: str) -> bool:
        return key in self._data
