"""Step 3: CUDA runtime FFI, the shim at work. BOOTSTRAP.md#step-3-cuda-runtime-ffi-ffilibiree_ffiso"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cudaboot.device.client import DeviceProcess
from pytest_cudaboot.errors import ShimError
from pytest_cudaboot.lowerers.base import LowererConfig
from pytest_cudaboot.lowerers.modules import Modules, name_of
from pytest_cudaboot.model import to_json
from pytest_cudaboot.probes.compiler import Compiler
from pytest_cudaboot.probes.iree_tree import given
from pytest_cudaboot.probes.process import Completed
from pytest_cudaboot.probes.store import ModuleStore
from pytest_cudaboot.project import Project
from pytest_cudaboot.rules.iree_target import Target, choose_device, choose_target, cuda_target
from pytest_cudaboot.rules.iree_tree import commit_fault
from pytest_cudaboot.rules.selection import pin_environment
from pytest_cudaboot.run.evidence import Evidence
from pytest_cudaboot.run.fixtures import Runner
from pytest_cudaboot.run.iree import compiled, compiler_environment
from pytest_cudaboot.run.nets import Net
from pytest_cudaboot.run.worker import WORKER

from .conftest import Trained, plainest_net

SEED = 31
STEPS = 20
# What the two lowerers' losses may differ by, of their size: the first steps of a net of dots, TF32 included.
AGREEMENT = 3e-3
GUARD, DOWNLOAD = 1, 4
SHIM = "libiree_ffi.so"


@pytest.fixture
def iree_checkout(checkout: Path, iree_shim: Path) -> Path:
    """The checkout with both shims."""
    shutil.copy2(iree_shim, checkout / "ffi" / SHIM)
    return checkout


@pytest.fixture
def ask(run: Runner, iree_checkout: Path) -> Callable[..., Completed]:
    """A function that asks the trainer which shim it would use, in a process that sees no card."""
    unset: dict[str, str | None] = {
        "LEAN_MLIR_LOWERER": None,
        "LEAN_MLIR_LOWERER_SO": None,
        "LD_LIBRARY_PATH": None,
    }

    def which(**env: str) -> Completed:
        return run(
            ["./trainer", "--which"], cwd=iree_checkout, env={**unset, **env}, device=False, check=False
        )

    return which


def loaded(done: Completed) -> tuple[str, str]:
    """What loaded, and the file's name."""
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    return record["lowerer"], Path(record["shim"]).name


@pytest.mark.spec("step3.choice")
@pytest.mark.parametrize(
    ("env", "kind"),
    [
        pytest.param({}, "xla", id="no variable"),
        pytest.param({"LEAN_MLIR_LOWERER": ""}, "xla", id="empty is as unset"),
        pytest.param({"LEAN_MLIR_LOWERER": "xla"}, "xla", id="xla"),
        pytest.param({"LEAN_MLIR_LOWERER": "iree"}, "iree", id="iree"),
        pytest.param({"LEAN_MLIR_LOWERER_SO": f"ffi/{SHIM}"}, "iree", id="the file"),
    ],
)
def test_with_both_shims_the_one_asked_for_loads(
    ask: Callable[..., Completed], env: dict[str, str], kind: str
) -> None:
    assert loaded(ask(**env)) == (kind, SHIM if kind == "iree" else "libpjrt_ffi.so")


# > Without either, XLA is tried and then IREE, and if it came to that, a line says so and why.
@pytest.mark.spec("step3.choice")
@pytest.mark.parametrize("damage", ["gone", "corrupt"])
def test_where_xla_can_not_be_loaded_iree_is_and_a_line_says_why(
    ask: Callable[..., Completed], iree_checkout: Path, damage: str
) -> None:
    xla = iree_checkout / "ffi" / "libpjrt_ffi.so"
    xla.unlink()
    if damage == "corrupt":
        xla.write_bytes(b"\x7fELF, and then nothing of use")

    done = ask()

    assert loaded(done) == ("iree", SHIM)
    assert "the XLA shim can not be loaded, so it is" in done.stderr
    assert re.search(r"libpjrt_ffi\.so: (cannot open|file too short|invalid ELF header)", done.stderr)


@pytest.mark.spec("step3.choice", role="canary")
def test_under_the_other_ones_name_it_is_refused(ask: Callable[..., Completed], iree_checkout: Path) -> None:
    (iree_checkout / "ffi" / SHIM).rename(iree_checkout / "ffi" / "libpjrt_ffi.so")

    done = ask(LEAN_MLIR_LOWERER="xla")

    assert (done.returncode, done.stdout) == (1, "")
    assert "is not the XLA shim (it has no pjrt_ffi_marker)" in done.stderr


@pytest.mark.spec("step3.choice", role="canary")
@pytest.mark.parametrize("wanted", ["xla", "tpu"])
def test_the_file_beside_another_word_is_refused(ask: Callable[..., Completed], wanted: str) -> None:
    done = ask(LEAN_MLIR_LOWERER_SO=f"ffi/{SHIM}", LEAN_MLIR_LOWERER=wanted)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"'{wanted}'" in done.stderr or f"LEAN_MLIR_LOWERER={wanted}" in done.stderr


@pytest.mark.spec("step3.choice", role="canary")
def test_iree_asked_for_and_gone_does_not_fall_back(
    ask: Callable[..., Completed], iree_checkout: Path
) -> None:
    (iree_checkout / "ffi" / SHIM).unlink()

    done = ask(LEAN_MLIR_LOWERER="iree")

    assert (done.returncode, done.stdout) == (1, "")
    assert "wanted: iree" in done.stderr
    assert "Step 3 of BOOTSTRAP.md builds the IREE shim" in done.stderr


@pytest.fixture
def one_step(run: Runner, iree_checkout: Path) -> Callable[..., Completed]:
    """A function that has the trainer try one step through IREE, on a device by that name, with no card in sight."""

    def attempt(device: str | None, vmfb: str = "nowhere") -> Completed:
        env = {"LEAN_MLIR_LOWERER": "iree", "IREE_DEVICE": device}
        argv = ["./trainer", "linear", "data", "--steps", "1", "--vmfb", vmfb]
        return run(argv, cwd=iree_checkout, env=env, device=False, check=False)

    return attempt


@pytest.fixture
def any_module(iree_checkout: Path) -> str:
    """A folder with a file that passes for a module until its contents are read."""
    folder = iree_checkout / "modules"
    folder.mkdir()
    # The shortest archive that there is: its end alone, after a beginning.
    (folder / "linear_train_step.vmfb").write_bytes(b"PK\3\4" + bytes(26) + b"PK\5\6" + bytes(18))
    return folder.name


# > By default the shim opens the device `cuda`.
@pytest.mark.spec("step3.cuda-hal")
def test_unset_asks_for_cuda(one_step: Callable[..., Completed], any_module: str) -> None:
    done = one_step(None, any_module)

    assert done.returncode == 1
    assert "device 'cuda' (IREE_DEVICE): " in done.stderr


# > `IREE_DEVICE` names another, `local-task` for the CPU, and an empty one is
# > refused.
@pytest.mark.spec("step3.cuda-hal", role="canary")
@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("", r"IREE_DEVICE='' names no device; unset it for cuda"),
        ("nonsense", r"no HAL driver matching 'nonsense' \(IREE_DEVICE\); this shim was linked with: .*cuda"),
        ("hip", r"no HAL driver matching 'hip'"),
        ("CUDA", r"no HAL driver matching 'CUDA'"),
    ],
)
def test_another_device_is_refused_by_name(
    one_step: Callable[..., Completed], any_module: str, device: str, words: str
) -> None:
    done = one_step(device, any_module)

    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(words, done.stderr)


# > The trainer refuses a shim that lacks one of the ten, names the symbol, and runs nothing on it.
@pytest.mark.spec("step3.stale-run", role="canary")
def test_a_stale_shim_is_refused_at_run_time(
    run: Runner, sources: Path, trainer_program: Path, stand_in: Callable[..., Path]
) -> None:
    shutil.copy2(trainer_program, sources / "trainer")
    stand_in("stale.so", "HAL_CUDA", "LACKS_SOFTLABEL").rename(sources / "ffi" / SHIM)

    done = run(["./trainer", "linear", "data"], cwd=sources, env=IREE, device=False, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "missing 'iree_ffi_train_step_adam_softlabel' -- not a usable shim" in done.stderr


IREE: dict[str, str | None] = {"LEAN_MLIR_LOWERER": "iree", "LEAN_MLIR_LOWERER_SO": None}


@pytest.mark.spec("step3.stale-run")
def test_a_whole_one_is_taken(
    run: Runner, sources: Path, trainer_program: Path, stand_in: Callable[..., Path]
) -> None:
    shutil.copy2(trainer_program, sources / "trainer")
    stand_in("whole.so").rename(sources / "ffi" / SHIM)

    done = run(["./trainer", "--which"], cwd=sources, env=IREE, device=False)

    assert loaded(done) == ("iree", SHIM)


@pytest.fixture(scope="module")
def plainest(project: Project) -> Net:
    return plainest_net(project)


@pytest.fixture(scope="module")
def modules_for(iree_compiler: Compiler, request: pytest.FixtureRequest) -> Callable[[Target], Modules]:
    """A function that gives modules for any target, whatever this run's cards."""
    worker = request.config.stash[WORKER]
    store, env = ModuleStore(Path(worker.plan.iree.modules)), compiler_environment(worker)

    def make(target: Target) -> Modules:
        return Modules(store, target, name_of(iree_compiler), program=iree_compiler.path, env=env)

    return make


@pytest.fixture(scope="module")
def host_modules(modules_for: Callable[[Target], Modules]) -> Modules:
    """Modules for the CPU: guards are the shim's, and the same everywhere."""
    return modules_for(choose_target("cpu", {}))


class Shim:
    """The IREE shim on the CPU, in a process of its own."""

    def __init__(self, process: DeviceProcess, evidence: Evidence) -> None:
        self._process, self._evidence = process, evidence

    def open(self, module: Path, source: Path | None = None) -> int:
        self._evidence.act()
        opened = self._process.call(
            "session_open",
            budget=self._evidence.left,
            path=str(module),
            source=str(source) if source else None,
        )
        return int(opened["session"])

    def invoke(self, session: int, fn: str, arrays: list[Any], **rest: Any) -> list[Any]:
        made: list[Any] = self._process.call(
            "invoke", budget=self._evidence.left, session=session, fn=fn, arrays=arrays, **rest
        )
        return made


@pytest.fixture
def shim(iree_shim: Path, tmp_path: Path, evidence: Evidence, outer: dict[str, str]) -> Any:
    env = {**pin_environment(outer, ()), "IREE_DEVICE": "local-task"}
    config = LowererConfig(
        name="iree", platform="cpu", shim=str(iree_shim), environment={"IREE_DEVICE": "local-task"}
    )
    with DeviceProcess(env=env, log_path=tmp_path / "device.log") as process:
        process.call("open", budget=evidence.left, config=to_json(config))
        evidence.ran_on("cpu", [])
        yield Shim(process, evidence)


@pytest.mark.spec("step3.guards")
def test_two_sessions_compute_what_the_oracle_does(
    shim: Shim, host_modules: Modules, plainest: Net, evidence: Evidence
) -> None:
    graph, inputs = plainest.forward, plainest.forward.inputs(SEED)
    module = compiled(host_modules, graph.path, (), evidence).path

    first, second = (shim.open(module, graph.path) for _ in range(2))
    made = [shim.invoke(session, graph.entry, inputs)[0] for session in (first, second)]

    (want,) = graph.oracle(inputs)
    assert np.array_equal(made[0], made[1])
    assert np.allclose(made[0], want, rtol=1e-4, atol=1e-4)


REFUSED = {
    "entry": ("m.other", None, r"the session holds @\w+ \(m\.\w+\), the caller asks for m\.other", GUARD),
    "module": (
        "module.ENTRY",
        None,
        r"the session holds @\w+ \(m\.\w+\), the caller asks for module\.",
        GUARD,
    ),
    "count": ("ENTRY", lambda arrays: arrays[:-1], r"takes \d+ inputs, the caller gives \d+", GUARD),
    "transposed": (
        "m.ENTRY",
        lambda arrays: [arrays[0], arrays[1].T.copy(), *arrays[2:]],
        r"input 1 of @\w+: the module wants tensor<784x\d+xf32>, the caller gives tensor<\d+x784xf32>",
        GUARD,
    ),
    "rank": (
        "m.ENTRY",
        lambda arrays: [arrays[0].reshape(-1), *arrays[1:]],
        r"input 0 of @\w+: the module wants tensor<128x784xf32>, the caller gives tensor<100352xf32>",
        GUARD,
    ),
}


@pytest.mark.spec("step3.guards", role="canary")
@pytest.mark.parametrize("guard", REFUSED)
def test_what_does_not_fit_is_refused_and_the_session_lives_on(
    shim: Shim, host_modules: Modules, plainest: Net, evidence: Evidence, guard: str
) -> None:
    graph, inputs = plainest.forward, plainest.forward.inputs(SEED)
    function, change, words, code = REFUSED[guard]
    session = shim.open(compiled(host_modules, graph.path, (), evidence).path, graph.path)

    with pytest.raises(ShimError, match=words) as refusal:
        shim.invoke(session, function.replace("ENTRY", graph.entry), change(inputs) if change else inputs)

    assert refusal.value.code == code
    assert len(shim.invoke(session, graph.entry, inputs)) == 1


@pytest.mark.spec("step3.guards", role="canary")
def test_outputs_that_do_not_fit_are_refused(
    shim: Shim, host_modules: Modules, plainest: Net, evidence: Evidence
) -> None:
    graph, inputs = plainest.forward, plainest.forward.inputs(SEED)
    session = shim.open(compiled(host_modules, graph.path, (), evidence).path, graph.path)

    with pytest.raises(ShimError, match="returns 1 outputs, the caller supplied 2") as count:
        shim.invoke(session, graph.entry, inputs, outputs=[[128, 10], [1]])
    with pytest.raises(ShimError, match="output 0 size mismatch") as size:
        shim.invoke(session, graph.entry, inputs, outputs=[[128, 9]])

    assert (count.value.code, size.value.code) == (GUARD, DOWNLOAD)


@pytest.mark.spec("step3.guards", role="canary")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda data: data[: len(data) // 2], "truncated: its", id="half"),
        pytest.param(lambda data: data[:-1], "truncated: its", id="all but a byte"),
        pytest.param(lambda data: data[:700] + data[-700:], "does not load", id="its middle is gone"),
        pytest.param(
            lambda _: b"\x7fELF" + bytes(4000), "this is an ELF file; the IREE shim takes", id="ELF"
        ),
        pytest.param(lambda _: b"", "the file is empty", id="empty"),
        pytest.param(
            lambda _: b"module @m {\n}\n",
            "this is text; the IREE shim takes a compiled .vmfb",
            id="StableHLO",
        ),
    ],
)
def test_what_is_no_module_is_refused(
    shim: Shim,
    host_modules: Modules,
    plainest: Net,
    evidence: Evidence,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    words: str,
) -> None:
    whole = compiled(host_modules, plainest.forward.path, (), evidence).path
    broken = tmp_path / "broken.vmfb"
    broken.write_bytes(change(whole.read_bytes()))

    with pytest.raises(ShimError):
        shim.open(broken, plainest.forward.path)

    assert words in (tmp_path / "device.log").read_text(errors="replace")


@pytest.mark.spec("step3.guards", role="canary")
def test_a_module_for_a_card_is_refused_on_the_cpu(
    shim: Shim,
    modules_for: Callable[[Target], Modules],
    plainest: Net,
    evidence: Evidence,
    tmp_path: Path,
) -> None:
    graph = plainest.forward
    module = compiled(modules_for(cuda_target("sm_86")), graph.path, (), evidence).path

    with pytest.raises(ShimError):
        shim.open(module, graph.path)

    said = (tmp_path / "device.log").read_text(errors="replace")
    assert re.search(r"does not load: .*INCOMPATIBLE.*not found or unavailable.*\"cuda\"", said)


@pytest.fixture
def vmfb(modules: Modules, plainest: Net, iree_checkout: Path, evidence: Evidence, gpus: Any) -> str:
    """A folder in the checkout with the plainest net's modules, for this run's device."""
    folder = iree_checkout / "vmfb"
    folder.mkdir()
    worker_gpus = gpus if modules.target.backend == "cuda" else ()
    for graph in (plainest.forward, plainest.step):
        shutil.copy2(
            compiled(modules, graph.path, worker_gpus, evidence).path, folder / f"{graph.entry}.vmfb"
        )
    return folder.name


# > The checkout has to be at the very commit that
# > `iree-compile --version` prints.
@pytest.mark.spec("step3.tree-commit")
def test_the_runtime_is_of_the_compilers_commit(
    modules: Modules, evidence: Evidence, request: pytest.FixtureRequest
) -> None:
    evidence.act()
    named = given(request.config.stash[WORKER].environ)
    if named is None:
        # A library does not tell its commit; a runtime of a far one refuses the module, and one of a near one hangs.
        trained = request.getfixturevalue("train_through_iree")("--steps", "3")
        assert trained.header["lowerer"] == "iree"
        return
    facts = request.getfixturevalue("iree_tree").facts
    evidence.note(tree_commit=facts.commit, tree_modified=facts.modified, compiler_commit=modules.name.commit)
    fault = commit_fault(facts, modules.name.commit)
    if fault is not None:
        pytest.fail(fault)


@pytest.fixture
def train_through_iree(
    train: Callable[..., Trained], plainest: Net, vmfb: str, request: pytest.FixtureRequest
) -> Callable[..., Trained]:
    """A function that trains the plainest net through the IREE shim, on this worker's device."""
    worker = request.config.stash[WORKER]
    env = {
        "LEAN_MLIR_LOWERER": "iree",
        "IREE_DEVICE": choose_device(worker.plan.platform, worker.environ),
    }

    def run_trainer(*options: str) -> Trained:
        return train(plainest.name, *options, "--vmfb", vmfb, env=env)

    return run_trainer


# > two lowerers differ in one thing, the `.so` that the
# > trainer `dlopen`s.
@pytest.mark.spec("step3.trains")
def test_both_lowerers_train_alike(
    train: Callable[..., Trained],
    train_through_iree: Callable[..., Trained],
    plainest: Net,
    device: str,
    measure: Callable[..., None],
) -> None:
    options = ("--steps", str(STEPS), "--seed", str(SEED))

    iree = train_through_iree(*options)
    xla = train(plainest.name, *options, env={"LEAN_MLIR_LOWERER": "xla"})

    assert [run.header["lowerer"] for run in (iree, xla)] == ["iree", "xla"]
    assert {run.header["device"] for run in (iree, xla)} == {device}
    assert iree.header["artifacts"] == xla.header["artifacts"]
    differences = np.abs(np.array(iree.losses) / np.array(xla.losses) - 1)
    measure(steps=len(differences), largest_relative_difference=float(differences.max()))
    assert len(differences) == STEPS
    assert differences.max() < AGREEMENT
    assert iree.losses[-1] < iree.losses[0]
