"""A private copy of the native sources, what is built of it, and children that drive it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ffi.helpers import (
    IDENTITY,
    PLUGINS,
    ROOT,
    Child,
    Json,
    Saboteurs,
    all_reduce,
    build,
    clean_environment,
    site_file,
)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the fixtures, so that nothing is built into the tree; the reference project is `reference`."""
    root = tmp_path_factory.mktemp("fixtures")
    for part in ("reference/ffi", "reference/nets", "broken/plugins"):
        shutil.copytree(ROOT / "fixtures" / part, root / part, ignore=shutil.ignore_patterns("*.so"))
    return root


@pytest.fixture(scope="session")
def project(checkout: Path) -> Path:
    return checkout / "reference"


@pytest.fixture(scope="session")
def shim(project: Path) -> Path:
    """The XLA shim, built by the documented line."""
    line = "gcc -fPIC -O2 -shared ffi/pjrt_ffi.c -ldl -o ffi/libpjrt_ffi.so"
    build(*line.split(), cwd=project)
    return project / "ffi/libpjrt_ffi.so"


@pytest.fixture(scope="session")
def trainer(project: Path) -> Path:
    build(*"gcc -O2 ffi/trainer.c -ldl -lm -o trainer".split(), cwd=project)
    return project / "trainer"


@pytest.fixture(scope="session")
def saboteur(checkout: Path) -> Saboteurs:
    return Saboteurs(checkout / "broken/plugins")


@pytest.fixture(scope="session")
def tiny(saboteur: Saboteurs) -> Path:
    """The one of them that works: fast, strict, and it counts what it hands out."""
    return saboteur("tiny_plugin")


@pytest.fixture(scope="session", params=list(PLUGINS))
def real_plugin(request: pytest.FixtureRequest) -> Path:
    """Each CPU plugin of the running interpreter."""
    return site_file(*PLUGINS[request.param])


@pytest.fixture(scope="session")
def vendor_include() -> Path:
    return site_file("xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h", PLUGINS["xla_cpu_pjrt"][1]).parent


@pytest.fixture(scope="session")
def child(project: Path, shim: Path) -> Child:
    def start(*ops: Json, cwd: Path | None = None, **settings: str) -> list[Json]:
        done = subprocess.run(
            [sys.executable, "-S", str(Path(__file__).with_name("drive.py")), str(shim)],
            input=json.dumps(ops),
            cwd=cwd or project,
            env=clean_environment(**settings),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        answers: list[Json] = json.loads(done.stdout)
        return answers

    return start


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small modules that tests run."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "pair.mlir").write_text(IDENTITY)
    for n in (2, 3):
        (folder / f"summed{n}.mlir").write_text(all_reduce(n))
    return folder
