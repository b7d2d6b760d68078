"""How long a test may take before it counts as hung: the catalogue's word, made shorter or longer by what was seen before."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_cudaboot.rules.catalog import Catalog

DEFAULT = 120.0
FIXTURES = 300.0  # for builds and starts, which are no part of what a spec's budget is about
FLOOR = 60.0  # a machine under load, or a cache that was cleared
SHORTER = 10.0  # a hang is known after so many times what it took at most
LONGER = 3.0  # and what is slow here, is slow here


def budget(listed: float, remembered: float | None) -> float:
    """Seconds that a test may take.

    The catalogue's figure is for a first run, which compiles everything. What a test took before under the very same
    toolchain shortens it, so that a hang is known sooner, but never below a floor; and it may lengthen it without
    end. A remembered time under another toolchain says nothing, so whoever remembers has to forget it.

    :param listed: the catalogue's.
    :param remembered: the longest of its last runs that ended well, or None if there was none.
    """
    if remembered is None:
        return listed
    return max(min(listed, max(FLOOR, SHORTER * remembered)), LONGER * remembered)


def name_of(spec: str, lowerer: str | None) -> str:
    """What a spec is remembered by: `step3.build`, `step4.run·xla`."""
    return f"{spec}·{lowerer}" if lowerer else spec


class Budgets:
    """Budgets of a run's tests; worker and controller make the same.

    :param remembered: seconds by `name_of`, of what was seen under the very same toolchain.
    """

    def __init__(self, catalog: Catalog | None, remembered: Mapping[str, float] | None = None) -> None:
        self._catalog = catalog
        self._remembered = remembered or {}

    def of(self, spec: str | None, lowerer: str | None = None) -> float:
        """Seconds for a test's body; a user's own test has the default."""
        if spec is None or self._catalog is None or spec not in self._catalog.specs:
            return DEFAULT
        return budget(float(self._catalog.specs[spec].budget), self._remembered.get(name_of(spec, lowerer)))
