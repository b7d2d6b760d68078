"""Builds: where they go, when they are made again, and what a failed one leaves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

import pytest_cudaboot
from pytest_cudaboot.errors import BuildError, BusyError, ProjectError, ToolMissingError, UsageError
from pytest_cudaboot.lowerers import build
from pytest_cudaboot.lowerers.build import SHIM_LINE, build_program, build_shim
from pytest_cudaboot.probes.elf import exported

ROOT = str(Path(pytest_cudaboot.__file__).parents[1])
ENV = {"PATH": os.defpath, "LANG": "C"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The smallest checkout that the documented line builds."""
    ffi = tmp_path / "project/ffi"
    ffi.mkdir(parents=True)
    (ffi / "value.h").write_text("#define VALUE 1\n")
    (ffi / "pjrt_ffi.c").write_text('#include "value.h"\nint value(void) { return VALUE; }\n')
    (ffi / "trainer.c").write_text('#include <stdio.h>\nint main(void) { puts("trained"); return 0; }\n')
    return ffi.parent


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """A compiler that keeps count of what it compiled and then is gcc."""
    script = tmp_path / "counting"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo "$@" >> {tmp_path}/count\nexec gcc "$@"\n')
    script.chmod(0o755)
    return script


def count(tmp_path: Path) -> int:
    return len((tmp_path / "count").read_text().splitlines())


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_documented_line_builds_outside_the_project(project: Path, out: Path) -> None:
    before = files(project)
    made = build_shim(project, out, env=ENV)

    assert made.name == "libpjrt_ffi.so"
    assert out in made.parents
    assert exported(made) == {"value"}
    assert files(project) == before


def test_the_line_is_the_documents() -> None:
    assert " ".join(SHIM_LINE) == "gcc -fPIC -O2 -shared ffi/pjrt_ffi.c -ldl -o ffi/libpjrt_ffi.so"


def test_the_same_content_is_built_once(project: Path, out: Path, counting: Path, tmp_path: Path) -> None:
    first = build_shim(project, out, env=ENV, cc=str(counting))
    (project / "ffi/pjrt_ffi.c").touch()
    second = build_shim(project, out, env=ENV, cc=str(counting))

    assert first == second
    assert count(tmp_path) == 1


def test_a_changed_header_is_another_build(project: Path, out: Path) -> None:
    """The old one stays: somebody may have it mapped."""
    first = build_shim(project, out, env=ENV)
    (project / "ffi/value.h").write_text("#define VALUE 2\n")
    second = build_shim(project, out, env=ENV)

    assert first.read_bytes() != second.read_bytes()


def test_line_compiler_and_its_variables_belong_to_the_content(
    project: Path, out: Path, counting: Path
) -> None:
    warm = [*SHIM_LINE[:-2], "-Wall", *SHIM_LINE[-2:]]
    made = {
        build_shim(project, out, env=ENV),
        build_shim(project, out, env=ENV, line=warm),
        build_shim(project, out, env=ENV, cc=str(counting)),
        build_shim(project, out, env={**ENV, "CPATH": "/nowhere"}),
    }

    assert len(made) == 4


def test_a_line_that_names_no_output_is_refused(project: Path, out: Path) -> None:
    with pytest.raises(UsageError, match=r"the build line 'gcc ffi/pjrt_ffi.c' has no `-o FILE`"):
        build_shim(project, out, env=ENV, line=["gcc", "ffi/pjrt_ffi.c"])


def test_a_missing_compiler_names_itself_and_its_package(project: Path, out: Path) -> None:
    with pytest.raises(ToolMissingError, match=r"no C compiler 'gcc' in PATH='/nowhere'; .*apt install gcc"):
        build_shim(project, out, env={"PATH": "/nowhere"})


def test_a_folder_without_sources_is_no_project(tmp_path: Path, out: Path) -> None:
    with pytest.raises(ProjectError, match="has no C sources in ffi/"):
        build_shim(tmp_path, out, env=ENV)


def test_refused_sources_leave_nothing_and_say_how_to_run_it_again(project: Path, out: Path) -> None:
    (project / "ffi/pjrt_ffi.c").write_text("int value(void) { return NOTHING; }\n")
    with pytest.raises(
        BuildError, match=r"(?s)gcc: exit status 1.*'NOTHING' undeclared.*cd .*/project && "
    ) as caught:
        build_shim(project, out, env=ENV)

    assert not [name for name in files(out) if not name.endswith(".lock")]
    assert re.search(r"gcc -fPIC -O2 -shared ffi/pjrt_ffi.c -ldl -o \S+/libpjrt_ffi.so$", str(caught.value))


def test_a_half_written_file_is_no_build(project: Path, out: Path, tmp_path: Path) -> None:
    """As a compiler leaves it that ran out of disk and did not look."""
    script = tmp_path / "short"
    script.write_text(
        "#!/bin/sh\n"
        'gcc "$@" || exit 1\n'
        'while [ $# -gt 0 ]; do [ "$1" = -o ] && truncate -s 3000 "$2"; shift; done\n'
        "exit 0\n"
    )
    script.chmod(0o755)
    with pytest.raises(BuildError, match=r"libpjrt_ffi.so is a damaged ELF file \(3000 bytes\)"):
        build_shim(project, out, env=ENV, cc=str(script))

    assert not list(out.rglob("*.so"))


def test_a_full_disk_is_a_build_error(project: Path) -> None:
    with pytest.raises(
        BuildError, match=r"no build in /dev/full/out: .*Not a directory.*; .*set XDG_CACHE_HOME"
    ):
        build_shim(project, Path("/dev/full/out"), env=ENV)


def test_a_build_that_does_not_end_is_waited_for_as_long_as_one_may_take(
    project: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build_shim(project, out, env=ENV)
    monkeypatch.setattr(build, "BUILD_BUDGET", 0.05)

    with (
        FileLock(out / f"{made.parent.name}.lock"),
        pytest.raises(
            BusyError, match=rf"another process has been building {made.name} for more than 0.05 s: pid "
        ),
    ):
        build_shim(project, out, env=ENV)


def test_what_a_killed_build_left_does_not_disturb_the_next(project: Path, out: Path) -> None:
    key = build_shim(project, out, env=ENV).parent
    left = key.with_name(f"{key.name}.partial")
    left.mkdir()
    (left / "libpjrt_ffi.so").write_bytes(b"half")
    (key / "libpjrt_ffi.so").unlink()

    assert exported(build_shim(project, out, env=ENV)) == {"value"}
    assert not left.exists()


@pytest.mark.parametrize("spoilt", ["libpjrt_ffi.so", "libpjrt_ffi.so.sha256"])
def test_a_spoilt_entry_is_built_again(
    project: Path, out: Path, counting: Path, tmp_path: Path, spoilt: str
) -> None:
    """As a disk or a hand leaves it: still ELF, and not what was built."""
    made = build_shim(project, out, env=ENV, cc=str(counting))
    good, entry = made.read_bytes(), made.with_name(spoilt)
    entry.write_bytes(entry.read_bytes()[:-1] + b"!")

    again = build_shim(project, out, env=ENV, cc=str(counting))
    assert (again, again.read_bytes(), count(tmp_path)) == (made, good, 2)
    build_shim(project, out, env=ENV, cc=str(counting))
    assert count(tmp_path) == 2


def test_two_at_once_build_once(project: Path, out: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || {{ echo x >> {tmp_path}/count; sleep 0.3; }}\nexec gcc "$@"\n'
    )
    slow.chmod(0o755)
    source = (
        "import sys; from pathlib import Path; from pytest_cudaboot.lowerers.build import build_shim\n"
        "print(build_shim(Path(sys.argv[1]), Path(sys.argv[2]), env={'PATH': sys.argv[4]}, cc=sys.argv[3]))\n"
    )
    words = ["/usr/bin/env", sys.executable, "-c", source, str(project), str(out), str(slow), os.defpath]
    both = [
        subprocess.Popen(words, stdout=subprocess.PIPE, env={"PYTHONPATH": ROOT}, text=True) for _ in range(2)
    ]
    answers = {one.communicate(timeout=60)[0] for one in both}

    assert len(answers) == 1
    assert [one.returncode for one in both] == [0, 0]
    assert count(tmp_path) == 1


def test_a_program_is_built_the_same_way(project: Path, out: Path) -> None:
    trainer = build_program(project, "ffi/trainer.c", out, ["-lm"], env=ENV)

    assert trainer.name == "trainer"
    assert subprocess.run([trainer], check=True, capture_output=True, text=True).stdout == "trained\n"
    assert build_program(project, "ffi/trainer.c", out, ["-lm"], env=ENV) == trainer
