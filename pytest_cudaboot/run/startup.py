"""How a run begins, in each of its processes: which kind of one this is. What one kind needs, another never imports."""

from __future__ import annotations

from collections.abc import MutableMapping

import pytest

from pytest_cudaboot.errors import UsageError
from pytest_cudaboot.run import prepare, rootdir
from pytest_cudaboot.run.settings import read_settings


def before_conftests(
    config: pytest.Config, args: list[str], environ: MutableMapping[str, str], *, worker: bool
) -> None:
    """Name the suite in every process; in the controller decide everything, and how many workers there are.

    There the first act is to withdraw the verdict of yesterday.
    """
    rootdir.correct(config, args)
    try:
        if worker:
            prepare.insert(config, args, prepare.suite_of(config, read_settings(config).catalog).arguments)
        else:
            from pytest_cudaboot.run import deciding

            begin = deciding.looked if config.known_args_namespace.collectonly else deciding.claimed
            begin(config, args, environ)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def configure(config: pytest.Config, environ: MutableMapping[str, str]) -> None:
    """Register what this process is: a worker, a controller, or both."""
    if hasattr(config, "workerinput"):
        from pytest_cudaboot.run.joining import join

        join(config, environ)
    else:
        from pytest_cudaboot.run.deciding import START, configure_controller

        configure_controller(config, config.stash[START], environ)
