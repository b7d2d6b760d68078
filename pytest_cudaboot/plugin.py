"""pytest's hooks. They only delegate; without `--gpus` they do nothing, and what is heavy is imported inside."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from pytest_cudaboot import hookspecs
from pytest_cudaboot.run.options import add_options

WORKER_VARIABLE = "PYTEST_XDIST_WORKER"


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None]:
    if _asked(early_config):
        from pytest_cudaboot.run import startup

        startup.before_conftests(early_config, args, os.environ, worker=WORKER_VARIABLE in os.environ)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "spec(id, role='check'): the test speaks for this spec of the catalogue"
    )
    if _asked(config):
        from pytest_cudaboot.run import startup

        startup.configure(config, os.environ)


def _asked(config: pytest.Config) -> bool:
    """Whether this run is ours: `--gpus` was given, and not only to print help."""
    namespace = config.known_args_namespace
    return namespace.gpus is not None and not (namespace.help or namespace.version)
