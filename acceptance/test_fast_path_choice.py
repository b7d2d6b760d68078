"""Fast path: XLA/PJRT, how shim and plugin are found. BOOTSTRAP.md#fast-path-xlapjrt-no-compiler-to-build"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.run.fixtures import Runner

UNSET: dict[str, str | None] = {
    "LEAN_MLIR_LOWERER": None,
    "LEAN_MLIR_LOWERER_SO": None,
    "LD_LIBRARY_PATH": None,
}


@pytest.fixture
def which(run: Runner, checkout: Path) -> Callable[..., Completed]:
    """A function that asks the trainer which shim it would use; it touches no device."""

    def ask(cwd: Path = checkout, **env: str) -> Completed:
        return run(
            [checkout / "trainer", "--which"], cwd=cwd, env={**UNSET, **env}, device=False, check=False
        )

    return ask


@pytest.fixture
def shims(checkout: Path, stand_in: Callable[..., Path]) -> Callable[..., None]:
    """A function that leaves exactly these shims in the checkout's ffi/: `xla`, `iree`."""
    iree = stand_in("libiree_ffi.so")

    def leave(*names: str) -> None:
        if "xla" not in names:
            (checkout / "ffi" / "libpjrt_ffi.so").unlink()
        if "iree" in names:
            iree.rename(checkout / "ffi" / "libiree_ffi.so")

    return leave


def loaded(done: Completed) -> tuple[str, str]:
    """What loaded, by its marker, and from where."""
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    return record["lowerer"], record["shim"]


def refused(done: Completed) -> str:
    """What was said instead of loading anything."""
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


# > `$LEAN_MLIR_LOWERER` picks between them at run time (`xla`, `pjrt`
# > or `iree`; anything else is an error that lists the three)
@pytest.mark.spec("fast.choice")
@pytest.mark.parametrize(
    ("env", "kind"),
    [
        pytest.param({}, "xla", id="no variable: XLA"),
        pytest.param({"LEAN_MLIR_LOWERER": "", "LEAN_MLIR_LOWERER_SO": ""}, "xla", id="empty is as unset"),
        pytest.param({"LEAN_MLIR_LOWERER": "xla"}, "xla", id="xla"),
        pytest.param({"LEAN_MLIR_LOWERER": "pjrt"}, "xla", id="pjrt is another name of xla"),
        pytest.param({"LEAN_MLIR_LOWERER": "iree"}, "iree", id="iree"),
        pytest.param(
            {"LEAN_MLIR_LOWERER_SO": "ffi/libiree_ffi.so"}, "iree", id="a file, known by its marker"
        ),
        pytest.param({"LEAN_MLIR_LOWERER_SO": "ffi/libpjrt_ffi.so"}, "xla", id="a file of the other kind"),
    ],
)
def test_what_is_reported_is_what_loaded(
    which: Callable[..., Completed], shims: Callable[..., None], env: dict[str, str], kind: str
) -> None:
    shims("xla", "iree")

    assert loaded(which(**env))[0] == kind


# > A directory on `LD_LIBRARY_PATH` that has a `libpjrt_ffi.so` comes before `ffi/`.
@pytest.mark.spec("fast.choice")
def test_a_library_path_injects_another_shim(
    which: Callable[..., Completed], checkout: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (checkout / "ffi" / "libpjrt_ffi.so").rename(elsewhere / "libpjrt_ffi.so")

    assert loaded(which(LD_LIBRARY_PATH=str(elsewhere))) == ("xla", str(elsewhere / "libpjrt_ffi.so"))


# > `LEAN_MLIR_LOWERER_SO=<file>` names one shim, and such a
# > request never falls back.
@pytest.mark.spec("fast.choice", role="canary")
@pytest.mark.parametrize(
    ("present", "env", "words"),
    [
        pytest.param(
            (),
            {},
            r"wanted: xla, then iree\).*ffi/libpjrt_ffi\.so: .*ffi/libiree_ffi\.so: ",
            id="nothing there: every name that was tried",
        ),
        pytest.param(
            ("iree",),
            {"LEAN_MLIR_LOWERER": "xla"},
            r"wanted: xla\).*ffi/libpjrt_ffi\.so: cannot open",
            id="xla asked for, only IREE there",
        ),
        pytest.param(
            ("xla",),
            {"LEAN_MLIR_LOWERER": "iree"},
            r"wanted: iree\).*ffi/libiree_ffi\.so: cannot open",
            id="iree asked for, only XLA there",
        ),
        pytest.param(
            ("xla",),
            {"LEAN_MLIR_LOWERER": "tpu"},
            "LEAN_MLIR_LOWERER='tpu' is not one of xla, pjrt, iree",
            id="tpu is none of the choices",
        ),
        pytest.param(
            ("xla",),
            {"LEAN_MLIR_LOWERER": "XLA"},
            "LEAN_MLIR_LOWERER='XLA' is not one of xla, pjrt, iree",
            id="XLA is none of the choices",
        ),
        pytest.param(
            ("xla", "iree"),
            {"LEAN_MLIR_LOWERER_SO": "ffi/gone.so"},
            r"LEAN_MLIR_LOWERER_SO=ffi/gone\.so \(no other file is tried\): .*No such file",
            id="a missing file",
        ),
        pytest.param(
            ("xla", "iree"),
            {"LEAN_MLIR_LOWERER_SO": "ffi/libpjrt_ffi.so", "LEAN_MLIR_LOWERER": "iree"},
            r"LEAN_MLIR_LOWERER=iree, but \S+/libpjrt_ffi\.so is the XLA shim",
            id="two requests that contradict each other",
        ),
        pytest.param(
            ("xla", "iree"),
            {"LEAN_MLIR_LOWERER_SO": "ffi/libpjrt_ffi.so", "LEAN_MLIR_LOWERER": "nonsense"},
            r"'nonsense' is not one of .*refused beside LEAN_MLIR_LOWERER_SO=ffi/libpjrt_ffi\.so",
            id="a file beside a word that is none",
        ),
    ],
)
def test_a_request_never_falls_back(
    which: Callable[..., Completed],
    shims: Callable[..., None],
    present: tuple[str, ...],
    env: dict[str, str],
    words: str,
) -> None:
    shims(*present)

    assert re.search(words, refused(which(**env)), re.DOTALL)


# > The trainer refuses a shim that lacks one of the ten, names the symbol, and runs nothing on it.
@pytest.mark.spec("fast.choice", role="canary")
@pytest.mark.parametrize(
    ("defines", "words"),
    [
        pytest.param(
            (),
            "is not the XLA shim .it has no pjrt_ffi_marker",
            id="no marker under the name of the XLA shim",
        ),
        pytest.param(
            ("MARKER", "LACKS_SEG"),
            r"libpjrt_ffi\.so: missing 'iree_ffi_train_step_adam_seg'",
            id="a stale one lacks a verb",
        ),
        pytest.param(
            ("MARKER", "LACKS_CONSTRUCTOR"),
            r"libpjrt_ffi\.so: missing 'iree_ffi_session_create'",
            id="one without a constructor",
        ),
    ],
)
def test_a_shim_that_is_none_is_refused(
    which: Callable[..., Completed],
    stand_in: Callable[..., Path],
    checkout: Path,
    defines: tuple[str, ...],
    words: str,
) -> None:
    stand_in("impostor.so", *defines).rename(checkout / "ffi" / "libpjrt_ffi.so")

    assert re.search(words, refused(which(LEAN_MLIR_LOWERER="xla")), re.DOTALL)


# > Run it from this folder: the shim, the graphs and `.venv` are found relative to the working directory.
@pytest.mark.spec("fast.choice", role="canary")
def test_another_working_directory_is_named(which: Callable[..., Completed], tmp_path: Path) -> None:
    message = refused(which(cwd=tmp_path))

    assert f"in {tmp_path}:" in message
    assert "./ffi/libpjrt_ffi.so: cannot open" in message


# > Without either, XLA is tried and then IREE, and if it came to that, a line says so and why.
@pytest.mark.spec("fast.silent-fallback")
def test_an_absent_xla_shim_falls_back_with_a_line(
    which: Callable[..., Completed], shims: Callable[..., None]
) -> None:
    shims("iree")

    done = which()

    assert loaded(done)[0] == "iree"
    assert "the XLA shim can not be loaded, so it is" in done.stderr
    assert "/ffi/libpjrt_ffi.so: cannot open shared object file" in done.stderr


@pytest.mark.spec("fast.silent-fallback", role="canary")
def test_a_corrupt_xla_shim_is_named_with_the_loaders_words(
    which: Callable[..., Completed], shims: Callable[..., None], checkout: Path
) -> None:
    shims("xla", "iree")
    (checkout / "ffi" / "libpjrt_ffi.so").write_bytes(b"\x7fELF, and then nothing of use")

    done = which()

    assert loaded(done)[0] == "iree"
    assert re.search(r"libpjrt_ffi\.so: (file too short|invalid ELF header)", done.stderr)
