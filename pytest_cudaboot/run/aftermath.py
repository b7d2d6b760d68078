"""After the verdict: what is left of broken cells goes to folders of their own. Whatever it can not write changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_cudaboot.model import Json, Record
from pytest_cudaboot.project import suite_root
from pytest_cudaboot.report.forensics import BROKEN, REPRO, write_broken
from pytest_cudaboot.report.shell import shell_of
from pytest_cudaboot.rules.catalog import Catalog


def keep_broken(
    config: pytest.Config,
    out: Path,
    catalog: Catalog,
    records: Sequence[Record],
    verdict: Json,
    variables: Mapping[str, str | None],
) -> str | None:
    """Write a folder for each broken cell.

    :param variables: the environment that the run was started with, as far as it matters.
    :returns: what is to be said of it, or None.
    """
    roots = (suite_root(), suite_root() / "acceptance", catalog.path.parent)
    try:
        count = write_broken(out, catalog, records, verdict, shell_of(config, variables, roots))
    except OSError as error:
        return f"what is left of broken cells could not be written: {error}"
    if not count:
        return None
    what = "1 broken cell has its" if count == 1 else f"{count} broken cells have their"
    return f"{what} evidence and {REPRO} in {out / BROKEN}"
