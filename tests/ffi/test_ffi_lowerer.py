"""The choice of the shim at run time, row by row of the ABI's table; `trainer --which` tells what loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_cudaboot.rules.shim_symbols import REQUIRED
from tests.ffi.helpers import build, run


class Root:
    """A project's root with shims in it, and the trainer run from there."""

    def __init__(self, path: Path, trainer: Path, stubs: Path) -> None:
        self.path = path
        self.trainer = trainer
        self.stubs = stubs

    def put(self, stub: str, where: str) -> Path:
        target = self.path / where
        target.parent.mkdir(exist_ok=True)
        return Path(shutil.copy(self.stubs / f"{stub}.so", target))

    def which(
        self, settings: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run(self.trainer, "--which", cwd=cwd or self.path, env=settings)

    def loaded(self, **settings: str) -> tuple[str, str]:
        done = self.which(settings)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return answer["lowerer"], answer["shim"]

    def refusal(self, **settings: str) -> str:
        done = self.which(settings)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr


def stub(folder: Path, name: str, *functions: str, first: str = "") -> None:
    bodies = "\n".join(f"void {f}(void) {{}}" for f in functions)
    (folder / f"{name}.c").write_text(f"{first}\n{bodies}\n")
    build("gcc", "-shared", "-fPIC", f"{name}.c", "-o", f"{name}.so", cwd=folder)


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shims that do nothing, so that what loads is told apart by its symbols alone."""
    folder = tmp_path_factory.mktemp("stubs")
    stub(folder, "iree", *REQUIRED)
    stub(folder, "xla", *REQUIRED, "pjrt_ffi_marker")
    stub(folder, "stale", *REQUIRED[:-2], "pjrt_ffi_marker")
    stub(folder, "no_create", *REQUIRED[1:], "pjrt_ffi_marker")
    (folder / "corrupt.so").write_text("this was a library once" * 20)
    (folder / "cut.so").write_bytes((folder / "xla.so").read_bytes()[:3000])
    foreign = bytearray((folder / "xla.so").read_bytes())
    foreign[18:20] = (183).to_bytes(2, "little")  # e_machine: aarch64
    (folder / "foreign.so").write_bytes(foreign)
    return folder


@pytest.fixture
def root(tmp_path: Path, trainer: Path, stubs: Path) -> Root:
    return Root(tmp_path, trainer, stubs)


XLA, IREE = "ffi/libpjrt_ffi.so", "ffi/libiree_ffi.so"


def test_default_is_xla(root: Root) -> None:
    shim = root.put("xla", XLA)
    root.put("iree", IREE)

    assert root.loaded() == ("xla", str(shim))


def test_default_falls_back_to_iree_and_says_why(root: Root) -> None:
    shim = root.put("iree", IREE)

    done = root.which()

    assert json.loads(done.stdout)["shim"] == str(shim)
    assert "the XLA shim can not be loaded, so it is" in done.stderr
    assert "./ffi/libpjrt_ffi.so: cannot open shared object file: No such file" in done.stderr


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("corrupt", "invalid ELF header"),
        ("cut", "truncated: it has 3000 bytes"),
        ("foreign", "cannot open shared object"),
    ],
)
def test_default_with_an_xla_shim_that_does_not_load(root: Root, broken: str, words: str) -> None:
    root.put(broken, XLA)
    shim = root.put("iree", IREE)

    done = root.which()

    assert json.loads(done.stdout) == {"kind": "lowerer", "lowerer": "iree", "shim": str(shim)}
    assert done.stderr.count("[trainer]") == 1
    assert words in done.stderr


def test_nothing_there(root: Root) -> None:
    said = root.refusal()

    assert f"no shim (wanted: xla, then iree). Tried, in order, in {root.path}:" in said
    for name in ("libpjrt_ffi.so", "./ffi/libpjrt_ffi.so", "libiree_ffi.so", "./ffi/libiree_ffi.so"):
        assert f"\n  {name}: cannot open shared object file: No such file or directory" in said
    assert "gcc -fPIC -O2 -shared ffi/pjrt_ffi.c -ldl -o ffi/libpjrt_ffi.so" in said


@pytest.mark.parametrize(
    ("asked", "there", "where", "absent"),
    [("xla", "iree", IREE, XLA), ("pjrt", "iree", IREE, XLA), ("iree", "xla", XLA, IREE)],
)
def test_explicit_request_never_falls_back(
    root: Root, asked: str, there: str, where: str, absent: str
) -> None:
    root.put(there, where)

    said = root.refusal(LEAN_MLIR_LOWERER=asked)

    assert f"no shim (wanted: {asked})" in said
    assert absent in said
    assert where not in said.split("\nRun from")[0]


@pytest.mark.parametrize("asked", ["tpu", "XLA", "xla "])
def test_unknown_name(root: Root, asked: str) -> None:
    root.put("xla", XLA)

    assert f"LEAN_MLIR_LOWERER='{asked}' is not one of xla, pjrt, iree" in root.refusal(
        LEAN_MLIR_LOWERER=asked
    )


@pytest.mark.parametrize("asked", ["xla", "pjrt"])
def test_named_xla(root: Root, asked: str) -> None:
    shim = root.put("xla", XLA)

    assert root.loaded(LEAN_MLIR_LOWERER=asked) == ("xla", str(shim))


def test_named_iree(root: Root) -> None:
    root.put("xla", XLA)
    shim = root.put("iree", IREE)

    assert root.loaded(LEAN_MLIR_LOWERER="iree") == ("iree", str(shim))


@pytest.mark.parametrize("other", ["", "nonsense", "xla", "iree"])
@pytest.mark.parametrize(
    ("broken", "words"), [("nowhere", "No such file"), ("corrupt", "invalid ELF header")]
)
def test_file_that_does_not_open(root: Root, other: str, broken: str, words: str) -> None:
    """Whatever else is set, and though good shims lie where they belong."""
    root.put("xla", XLA)
    root.put("iree", IREE)
    file = root.stubs / f"{broken}.so"

    said = root.refusal(LEAN_MLIR_LOWERER_SO=str(file), LEAN_MLIR_LOWERER=other)

    assert f"LEAN_MLIR_LOWERER_SO={file} (no other file is tried)" in said
    assert words in said


@pytest.mark.parametrize("kind", ["xla", "iree"])
def test_file_is_reported_by_its_marker(root: Root, kind: str) -> None:
    file = root.put(kind, "purpose-built.so")

    assert root.loaded(LEAN_MLIR_LOWERER_SO=str(file)) == (kind, str(file))
    assert root.loaded(LEAN_MLIR_LOWERER_SO=str(file), LEAN_MLIR_LOWERER=kind) == (kind, str(file))


@pytest.mark.parametrize(
    ("kind", "other"), [("xla", "iree"), ("iree", "xla"), ("iree", "pjrt"), ("xla", "nonsense")]
)
def test_file_and_name_that_contradict(root: Root, kind: str, other: str) -> None:
    file = root.put(kind, "purpose-built.so")

    said = root.refusal(LEAN_MLIR_LOWERER_SO=str(file), LEAN_MLIR_LOWERER=other)

    assert str(file) in said
    assert other in said


def test_asked_for_xla_and_it_has_no_marker(root: Root) -> None:
    root.put("iree", XLA)

    said = root.refusal(LEAN_MLIR_LOWERER="xla")

    assert (
        f"LEAN_MLIR_LOWERER=xla, but {root.path / XLA} is not the XLA shim (it has no pjrt_ffi_marker)"
        in said
    )


def test_asked_for_iree_and_it_has_the_marker(root: Root) -> None:
    root.put("xla", IREE)

    assert "is the XLA shim (it has pjrt_ffi_marker): refused" in root.refusal(LEAN_MLIR_LOWERER="iree")


def test_by_default_the_marker_decides_the_name(root: Root) -> None:
    shim = root.put("iree", XLA)

    assert root.loaded() == ("iree", str(shim))


@pytest.mark.parametrize("settings", [{}, {"LEAN_MLIR_LOWERER": "xla"}])
@pytest.mark.parametrize(
    ("broken", "missing"),
    [
        ("stale", "'iree_ffi_train_step_adam_ddpm', 'iree_ffi_train_step_adam_yolov1'"),
        ("no_create", "'iree_ffi_session_create'"),
    ],
)
def test_stale_shim_is_refused_without_fall_back(
    root: Root, settings: dict[str, str], broken: str, missing: str
) -> None:
    root.put(broken, XLA)
    root.put("iree", IREE)

    said = root.refusal(**settings)

    assert f"./{XLA}: missing {missing} -- not a usable shim" in said
    assert "libiree_ffi.so" not in said


def test_library_path_injects_a_shim(root: Root) -> None:
    root.put("xla", XLA)
    injected = root.put("xla", "injected/libpjrt_ffi.so")

    assert root.loaded(LD_LIBRARY_PATH=str(injected.parent)) == ("xla", str(injected))


def test_injected_shim_that_does_not_load_is_not_passed_over(root: Root) -> None:
    root.put("xla", XLA)
    injected = root.put("corrupt", "injected/libpjrt_ffi.so")

    said = root.refusal(LD_LIBRARY_PATH=str(injected.parent), LEAN_MLIR_LOWERER="xla")

    assert f"{injected}: invalid ELF header" in said
    assert f"./{XLA}" not in said.split("\nRun from")[0]


def test_empty_variables_are_unset(root: Root) -> None:
    shim = root.put("xla", XLA)

    assert root.loaded(LEAN_MLIR_LOWERER="", LEAN_MLIR_LOWERER_SO="") == ("xla", str(shim))


def test_another_working_directory(root: Root, tmp_path_factory: pytest.TempPathFactory) -> None:
    root.put("xla", XLA)
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    done = root.which(cwd=elsewhere)

    assert done.returncode == 1
    assert f"Tried, in order, in {elsewhere}:" in done.stderr
    assert "./ffi/libpjrt_ffi.so: cannot open shared object file" in done.stderr


def test_second_attempt_says_the_same(root: Root) -> None:
    assert root.refusal() == root.refusal()
