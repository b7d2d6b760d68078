"""A private copy of the native sources, what is built of it, and children that drive it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.ffi.drift import DRIFT, SHARED
from tests.ffi.fake_modules import FAKE, LINE, PAIR, vmfb
from tests.ffi.helpers import (
    BUILD_SHIM,
    BUILD_TRAINER,
    DATA_NAMES,
    IDENTITY,
    PLUGINS,
    ROOT,
    TRAIN,
    Builds,
    Child,
    Saboteurs,
    all_reduce,
    driving,
    images,
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
def builds(common: Path) -> Builds:
    """What any worker has built is there for all."""
    shared = common / "builds"
    shared.mkdir(exist_ok=True)
    return Builds(shared)


@pytest.fixture(scope="session")
def project(checkout: Path) -> Path:
    return checkout / "reference"


@pytest.fixture(scope="session")
def shim(project: Path, builds: Builds) -> Path:
    """The XLA shim, built by the documented line."""
    return builds(*BUILD_SHIM.split(), cwd=project)


@pytest.fixture(scope="session")
def trainer(project: Path, builds: Builds) -> Path:
    return builds(*BUILD_TRAINER.split(), cwd=project)


@pytest.fixture(scope="session")
def saboteur(checkout: Path, builds: Builds) -> Saboteurs:
    return Saboteurs(checkout / "broken/plugins", builds)


@pytest.fixture(scope="session")
def tiny(saboteur: Saboteurs) -> Path:
    """The one of them that works: fast, strict, and it counts what it hands out."""
    return saboteur("tiny_plugin")


@pytest.fixture(scope="session", params=list(PLUGINS))
def real_plugin(request: pytest.FixtureRequest) -> Path:
    """Each CPU plugin of the running interpreter."""
    return site_file(*PLUGINS[request.param])


@pytest.fixture(scope="session")
def cpu_plugin() -> Path:
    """One of them, for what does not depend on the plugin."""
    return site_file(*PLUGINS["xla_cpu_pjrt"])


@pytest.fixture(scope="session")
def vendor_include() -> Path:
    return site_file("xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h", PLUGINS["xla_cpu_pjrt"][1]).parent


@pytest.fixture(scope="session")
def child(project: Path, shim: Path) -> Child:
    return driving(shim, project)


@pytest.fixture(scope="session")
def iree_shim(project: Path, builds: Builds) -> Path:
    sources = ("ffi/iree_ffi.c", FAKE / "fake_iree.c")
    return builds(
        "gcc", "-fPIC", "-O1", "-g", "-shared", *LINE, *sources, "-o", "ffi/libiree_ffi.so", cwd=project
    )


@pytest.fixture(scope="session")
def iree(iree_shim: Path, project: Path) -> Child:
    return driving(iree_shim, project)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    return vmfb(tmp_path / "pair.vmfb", "__init|", f"pair|{PAIR}")


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small modules that tests run."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "pair.mlir").write_text(IDENTITY)
    (folder / "train.mlir").write_text(TRAIN)
    for n in (2, 3):
        (folder / f"summed{n}.mlir").write_text(all_reduce(n))
    return folder


@pytest.fixture(scope="session")
def drifts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modules that are trained: one on one device, one on two, one that gives its own input away."""
    made = tmp_path_factory.mktemp("resident")
    (made / "drift.mlir").write_text(DRIFT)
    (made / "shared.mlir").write_text(SHARED)
    (made / "giving.mlir").write_text(
        DRIFT.replace("%x: tensor<4xf32>", "%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}")
    )
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    contents = [*images(300, 1), *images(150, 2)]
    for name, content in zip(DATA_NAMES, contents, strict=True):
        (folder / f"{name}-ubyte").write_bytes(content)
    return folder


@pytest.fixture
def root(tmp_path: Path, project: Path, shim: Path) -> Path:
    """A project's root: shim and nets."""
    (tmp_path / "ffi").mkdir()
    shutil.copy(shim, tmp_path / "ffi")
    shutil.copytree(project / "nets", tmp_path / "nets")
    return tmp_path
