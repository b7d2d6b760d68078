"""Fast path: XLA/PJRT, how the shim finds its plugin. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.probes.process import Completed

VENV_PLUGIN = ".venv/lib/python3.12/site-packages/jax_plugins/xla_cuda{}/xla_cuda_plugin.so"


# > `PJRT_PLUGIN=<file>` names
# > another plugin, and then that file alone is tried.
@pytest.mark.spec("fast.plugin-env")
def test_the_named_plugin_is_the_one_that_is_mapped(
    mapped_while_training: Callable[..., list[str]], pjrt_plugin: Path
) -> None:
    assert str(pjrt_plugin.resolve()) in mapped_while_training()


@pytest.mark.spec("fast.plugin-env", role="canary")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("missing", "cannot open .*No such file", id="a file that is not there"),
        pytest.param("directory", "cannot read file data", id="a directory"),
        pytest.param("text", "(invalid ELF header|file too short)", id="a text file"),
        pytest.param(
            "truncated", r"truncated: it has 1048576 bytes, its headers need \d+", id="the plugin's beginning"
        ),
        pytest.param("other", r"is no PJRT plugin \(it has no GetPjrtApi\)", id="a library of another kind"),
    ],
)
def test_a_plugin_that_is_none_is_refused_by_its_path(
    attempt: Callable[[str | None], Completed],
    pjrt_plugin: Path,
    stand_in: Callable[..., Path],
    tmp_path: Path,
    kind: str,
    words: str,
) -> None:
    named = tmp_path / "plugin.so"
    if kind == "directory":
        named.mkdir()
    elif kind == "text":
        named.write_text("this is no shared library\n")
    elif kind == "truncated":
        with pjrt_plugin.open("rb") as whole:
            named.write_bytes(whole.read(1 << 20))
    elif kind == "other":
        named = stand_in("plugin.so")

    done = attempt(str(named))

    assert done.returncode == 1
    assert re.search(rf"{re.escape(str(named))}: {words}", done.stderr)
    assert "xla_cuda_plugin.so" not in done.stderr, "one file was named, and something else was tried"


# > Unless told otherwise
# > it looks in the project's own `.venv`, under any Python version, for CUDA 12 and 13, and a miss lists every place.
@pytest.mark.spec("fast.own-venv")
@pytest.mark.parametrize("major", ["12", "13"])
def test_the_projects_own_venv_is_searched(
    mapped_while_training: Callable[..., list[str]], checkout: Path, pjrt_plugin: Path, major: str
) -> None:
    _install(checkout / VENV_PLUGIN.format(major), pjrt_plugin)

    assert str(pjrt_plugin.resolve()) in mapped_while_training(env={"PJRT_PLUGIN": ""})


@pytest.mark.spec("fast.own-venv", role="canary")
def test_a_miss_lists_every_place_and_no_neighbours_is_used(
    attempt: Callable[[str | None], Completed], checkout: Path, pjrt_plugin: Path
) -> None:
    _install(checkout.parent / VENV_PLUGIN.format("13"), pjrt_plugin)

    done = attempt(None)

    assert done.returncode == 1
    for major in ("12", "13"):
        assert re.search(
            rf"{re.escape(str(checkout))}/\.venv/\S*xla_cuda{major}/\S*: .*No such file", done.stderr
        )


def _install(place: Path, plugin: Path) -> None:
    """Put a plugin where pip would. A link to its file would lose what it finds beside itself; one to a folder not."""
    place.parent.parent.mkdir(parents=True)
    if plugin.name == place.name:
        place.parent.symlink_to(plugin.parent)
        return
    place.parent.mkdir()
    place.symlink_to(plugin)
