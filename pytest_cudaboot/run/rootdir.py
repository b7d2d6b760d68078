"""The rootdir, where pytest took an option's value for a test path. The one file that writes pytest's own fields.

pytest decides on rootdir and ini file before it knows the options of installed plugins, so in `--cudaboot-project DIR`
it sees a path to collect from, and settles there: in a project that must not be written to. What it would have
decided is set right here (`tests/run/test_rootdir.py` holds the private names).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.config.findpaths import determine_setup

from pytest_cudaboot.run.prepare import insert

OPTIONS = ("--gpus", "--cudaboot-")


def correct(config: pytest.Config, args: list[str]) -> None:
    """Decide on rootdir and ini file again, by the test paths alone, if a value of ours was among them."""
    namespace = config.known_args_namespace
    if namespace.rootdir is not None or not _values(config.invocation_params.args):
        return
    before = config.rootpath, config.inipath
    rootpath, inipath, inicfg, *_ = _determine(config)
    if (rootpath, inipath) == before:
        return
    config._rootpath, config._inipath = rootpath, inipath  # noqa: SLF001 - see above
    setattr(config, "_inicfg" if hasattr(config, "_inicfg") else "inicfg", inicfg)
    config._inicache.clear()  # noqa: SLF001 - see above
    wrong = str(before[1].parent if before[1] else before[0])
    if namespace.confcutdir == wrong:
        namespace.confcutdir = str(inipath.parent if inipath else rootpath)
    insert(config, args, config.getini("addopts"))


def _values(args: Sequence[object]) -> list[str]:
    """Values of our options that stand as words of their own."""
    words = [str(word) for word in args]
    return [
        value
        for option, value in itertools.pairwise(words)
        if option.startswith(OPTIONS) and "=" not in option
    ]


def _determine(config: pytest.Config) -> Sequence[Any]:
    namespace = config.known_args_namespace
    given = {
        "inifile": namespace.inifilename,
        "override_ini": namespace.override_ini,
        "args": namespace.file_or_dir,
        "rootdir_cmd_arg": None,
        "invocation_dir": config.invocation_params.dir,
    }
    known = inspect.signature(determine_setup).parameters  # pytest 8.4 has no override_ini
    return determine_setup(**{name: value for name, value in given.items() if name in known})
