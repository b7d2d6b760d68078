"""What is handed out is given back, on every path: counted by the tiny plugin, AddressSanitizer, valgrind, and RSS."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.ffi.helpers import Builds, Child, Json, create, invoke, run, tensor

PAIR: Json = invoke("pair", [tensor(2, 3), tensor()], [6, 1])
SCENARIO = Path(__file__).with_name("scenario.c")
CLIENT_ONLY = 1  # the client lives as long as the process

# Function that fails, at which of its calls, and what the invocation then answers.
CALLS: list[tuple[str, int]] = [
    ("PJRT_Client_BufferFromHostBuffer", 2),
    ("PJRT_Client_BufferFromHostBuffer:2", 2),
    ("PJRT_LoadedExecutable_Execute", 3),
    ("PJRT_Buffer_ToHostBuffer", 4),
    ("PJRT_Buffer_ToHostBuffer:2", 4),
    ("PJRT_Buffer_ToHostBuffer:4", 4),
]

EVENTS = [("transfer", 2), ("execute", 3), ("copy", 4)]

SESSION_CALLS = (
    "PJRT_Client_Compile",
    "PJRT_LoadedExecutable_GetExecutable",
    "PJRT_Executable_NumOutputs",
    "PJRT_Executable_OutputDimensions",
    "PJRT_LoadedExecutable_AddressableDevices",
)

CLIENT_CALLS = ("PJRT_Client_PlatformName", "PJRT_Client_Devices")


def one_session(modules: Path, tiny: Path) -> list[Json]:
    counts: Json = {"op": "counts", "plugin": str(tiny)}
    return [create(modules / "pair.mlir"), PAIR, PAIR, {"op": "release", "session": 0}, counts]


@pytest.mark.parametrize(("call", "code"), CALLS)
def test_failed_call_leaves_nothing_behind(
    child: Child, modules: Path, tiny: Path, call: str, code: int
) -> None:
    _, failed, again, _, counts = child(*one_session(modules, tiny), PJRT_PLUGIN=str(tiny), TINY_FAIL=call)

    assert (failed["code"], again["code"], counts["held"]) == (code, 0, CLIENT_ONLY)
    assert f"{call.partition(':')[0]} was asked to fail" in failed["said"]


@pytest.mark.parametrize(("event", "code"), EVENTS)
def test_failed_event_leaves_nothing_behind(
    child: Child, modules: Path, tiny: Path, event: str, code: int
) -> None:
    """The code is that of the stage at which it went wrong, though each later stage fails too."""
    answers = child(*one_session(modules, tiny), PJRT_PLUGIN=str(tiny), TINY_FAIL_EVENT=event)

    _, failed, again, _, counts = answers
    assert (failed["code"], again["code"], counts["held"]) == (code, code, CLIENT_ONLY)
    assert f"the {event} was asked to fail" in failed["said"]


@pytest.mark.parametrize("call", SESSION_CALLS)
def test_failed_session_leaves_nothing_behind(child: Child, modules: Path, tiny: Path, call: str) -> None:
    op = create(modules / "pair.mlir")
    counts: Json = {"op": "counts", "plugin": str(tiny)}

    failed, again, held = child(op, op, counts, PJRT_PLUGIN=str(tiny), TINY_FAIL=call)

    assert (failed["made"], again["made"]) == (False, True)
    assert f"{call} was asked to fail" in failed["said"]
    assert held["held"] == CLIENT_ONLY + 1  # and the session that was made


@pytest.mark.parametrize("call", CLIENT_CALLS)
def test_failed_client_leaves_nothing_behind(child: Child, tiny: Path, call: str) -> None:
    counts: Json = {"op": "counts", "plugin": str(tiny)}

    failed, held, again = child(
        {"op": "describe"}, counts, {"op": "describe"}, PJRT_PLUGIN=str(tiny), TINY_FAIL=call
    )

    assert (failed["code"], again["code"], held["held"]) == (1, 0, 0)


def test_copies_are_all_issued_before_one_is_awaited(child: Child, modules: Path, tiny: Path) -> None:
    _, first, second, _, counts = child(*one_session(modules, tiny), PJRT_PLUGIN=str(tiny))

    assert (first["code"], second["code"]) == (0, 0)
    assert counts["late"] == 0


@pytest.mark.parametrize("times", [100])
def test_sessions_do_not_grow(child: Child, modules: Path, real_plugin: Path, times: int) -> None:
    """The first half warms up; in the second, less than a kilobyte a session stays."""
    op: Json = {"op": "churn", "path": str(modules / "pair.mlir"), "times": times}

    (answer,) = child(op, PJRT_PLUGIN=str(real_plugin))

    warm, end = answer["pages"][4], answer["pages"][-1]
    assert end - warm < times // 2 // 4, answer["pages"]


def test_sessions_of_the_shim_alone_do_not_grow(child: Child, modules: Path, tiny: Path) -> None:
    """A hundred bytes a session would be a hundred pages."""
    op: Json = {"op": "churn", "path": str(modules / "pair.mlir"), "times": 5000}

    (answer,) = child(op, PJRT_PLUGIN=str(tiny))

    assert answer["pages"][-1] - answer["pages"][1] < 20, answer["pages"]


# ---- the memory checkers, over one scenario with its error paths


@pytest.fixture(scope="session")
def asan(project: Path, builds: Builds) -> tuple[Path, Path]:
    """Shim and scenario with AddressSanitizer and UBSan."""
    flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    shared = ("-fPIC", "-shared", "ffi/pjrt_ffi.c", "-ldl", "-o", "asan_shim.so")
    library = builds("gcc", *flags, *shared, cwd=project)
    return builds("gcc", *flags, "-Iffi", SCENARIO, "-ldl", "-o", "asan_scenario", cwd=project), library


@pytest.fixture(scope="session")
def scenario_program(project: Path, builds: Builds) -> Path:
    return builds("gcc", "-g", "-Iffi", SCENARIO, "-ldl", "-o", "scenario", cwd=project)


@pytest.fixture(scope="session")
def bad_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "bad.mlir"
    path.write_text('func.func @a(%x: tensor<4xf32> {a = "}"}) -> tensor<4xf32> {} func.func @b()')
    return path


def scenario(modules: Path, bad_file: Path, plugin: Path) -> list[str | Path]:
    return [*(modules / f"{name}.mlir" for name in ("pair", "summed2", "train")), bad_file, plugin]


@pytest.mark.parametrize(
    ("wish", "code"),
    [({}, 0), *(({"TINY_FAIL_EVENT": event}, code) for event, code in EVENTS)],
    ids=["good", *(event for event, _ in EVENTS)],
)
def test_address_sanitizer_with_leaks(
    asan: tuple[Path, Path], modules: Path, bad_file: Path, tiny: Path, wish: dict[str, str], code: int
) -> None:
    program, library = asan
    options = "detect_leaks=1:abort_on_error=0:exitcode=7"
    settings = {"PJRT_PLUGIN": str(tiny), "PJRT_REPLICAS": "2", "ASAN_OPTIONS": options} | wish

    done = run(
        program, library, *scenario(modules, bad_file, tiny), str(code), cwd=library.parent, env=settings
    )

    assert (done.returncode, done.stdout) == (0, f"held {CLIENT_ONLY}\n"), done.stderr


def test_address_sanitizer_over_a_real_plugin(
    asan: tuple[Path, Path], modules: Path, bad_file: Path, real_plugin: Path, tmp_path: Path
) -> None:
    """Leaks of the plugin's own are not ours; any leak with a frame of the shim still counts."""
    program, library = asan
    (tmp_path / "plugin.supp").write_text(f"leak:{real_plugin.name}\n")
    settings = {
        "PJRT_PLUGIN": str(real_plugin),
        "PJRT_REPLICAS": "2",
        "ASAN_OPTIONS": "detect_leaks=1:exitcode=7",
        "LSAN_OPTIONS": f"suppressions={tmp_path}/plugin.supp:print_suppressions=0",
    }

    done = run(program, library, *scenario(modules, bad_file, real_plugin), cwd=library.parent, env=settings)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(
    ("wish", "code"),
    [({}, 0), ({"TINY_FAIL_EVENT": "transfer"}, 2)],
    ids=["good", "failing"],
)
def test_valgrind(
    scenario_program: Path,
    shim: Path,
    modules: Path,
    bad_file: Path,
    tiny: Path,
    wish: dict[str, str],
    code: int,
) -> None:
    assert shutil.which("valgrind"), "valgrind is missing: apt-get install valgrind"
    check = (
        "valgrind -q --error-exitcode=7 --leak-check=full --errors-for-leak-kinds=definite,indirect,possible"
    )
    settings = {"PJRT_PLUGIN": str(tiny), "PJRT_REPLICAS": "2"} | wish

    done = run(
        *check.split(),
        scenario_program,
        shim,
        *scenario(modules, bad_file, tiny),
        str(code),
        cwd=scenario_program.parent,
        env=settings,
    )

    assert (done.returncode, done.stdout) == (0, f"held {CLIENT_ONLY}\n"), done.stderr
