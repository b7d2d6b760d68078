"""The IREE shim's own code: its guards, its words, what it gives back. The runtime is one in name only.

What IREE itself does is for the acceptance suite's Step 3, which takes a real build tree.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ffi.fake_modules import FAKE, LINE, PAIR, vmfb
from tests.ffi.helpers import Child, Json, build, create, invoke, run
from tests.ffi.test_ffi_build import COMPILERS, STRICT
from tests.ffi.test_ffi_guards import GOOD, REFUSED, STEMS, TOTALS

# Guards that both shims have, and in the same words.
SHARED = {
    name: row
    for name, row in REFUSED.items()
    if "replica" not in name and "shard" not in name and "entry" not in name
}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimise", ["-O0", "-O2"])
def test_shim_has_no_warning(project: Path, tmp_path: Path, compiler: str, optimise: str) -> None:
    flags = (*STRICT.split(), optimise, "-fPIC", "-c", *LINE[:-1])

    build(compiler, *flags, "ffi/iree_ffi.c", "-o", tmp_path / "shim.o", cwd=project)


@pytest.mark.parametrize("name", ["m.pair", "pair"])
def test_what_fits_runs_twice_and_everything_is_given_back(iree: Child, pair: Path, name: str) -> None:
    good = invoke(name, GOOD, TOTALS)
    *answers, first, released, last = iree(
        create(pair), good, good, {"op": "held"}, {"op": "release", "session": 0}, {"op": "held"}
    )

    assert answers[1] == answers[2] == {"code": 0, "outputs": [[1, 2, 3, 4, 5, 6], [1]], "said": ""}
    assert released["said"] == ""
    # The process's registry, VM and device stay.
    assert (first["held"], last["held"]) == (4, 3)


def test_a_second_session_shares_the_device(iree: Child, pair: Path) -> None:
    *made, held = iree(create(pair), create(pair), {"op": "held"})

    assert [one["made"] for one in made] == [True, True]
    assert held["held"] == 3 + 2


@pytest.fixture(scope="module")
def refusals(iree: Child, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    """All of them in one child, between two calls that succeed."""
    path = vmfb(tmp_path_factory.mktemp("refusals") / "pair.vmfb", f"pair|{PAIR}")
    good = invoke("m.pair", GOOD, TOTALS)
    answers = iree(create(path), good, *(op for op, _, _ in SHARED.values()), good, {"op": "held"})
    return dict(zip(["made", "before", *SHARED, "after", "held"], answers, strict=True))


@pytest.mark.parametrize("guard", SHARED)
def test_guard_fires_with_the_same_words_as_the_other_shims(refusals: dict[str, Json], guard: str) -> None:
    _, code, words = SHARED[guard]
    said: str = refusals[guard]["said"]

    assert refusals[guard]["code"] == code
    assert words in said
    assert said.startswith("[iree_ffi] invoke: ")
    assert said.count("\n") == 1


def test_the_session_lives_on_and_nothing_is_held(refusals: dict[str, Json]) -> None:
    assert refusals["before"] == refusals["after"]
    assert refusals["held"]["held"] == 4


@pytest.mark.parametrize("name", ["fwd", "m.fwd", "n.pair", "module.pair", "m.n.pair", ".pair", "pair.m"])
def test_another_function_or_module_is_refused_with_both_names(iree: Child, pair: Path, name: str) -> None:
    _, answer = iree(create(pair), invoke(name, GOOD, TOTALS))

    assert answer["code"] == 1
    assert f"the session holds @pair (m.pair), the caller asks for {name}\n" in answer["said"]


def test_a_function_without_a_name_is_refused(iree: Child, pair: Path) -> None:
    _, answer = iree(create(pair), invoke("pair", GOOD, TOTALS, lie={"fn": None}))

    assert answer["code"] == 1
    assert "name is NULL (the session holds @pair)" in answer["said"]


@pytest.mark.parametrize(
    ("fails", "code", "words"),
    [
        ("call", 3, "iree_runtime_call_initialize: call:1: INTERNAL; no call today"),
        ("upload", 2, "host to device: upload:1: INTERNAL; out of memory"),
        ("push", 2, "host to device: push:1: INTERNAL; the list is full"),
        ("invoke", 3, "execution: invoke:1: INTERNAL; the kernel trapped"),
        ("pop", 4, "device to host: pop:1: INTERNAL; the list is empty"),
        ("download", 4, "device to host: download:1: INTERNAL; the link is down"),
        ("size", 4, "output 0 size mismatch: the device has 20 bytes, caller 24"),
        ("element", 4, "output 0: the device has no float32"),
    ],
)
def test_what_fails_has_its_code_its_words_and_nothing_is_held(
    iree: Child, pair: Path, fails: str, code: int, words: str
) -> None:
    _, answer, held = iree(create(pair), invoke("pair", GOOD, TOTALS), {"op": "held"}, FAKE_IREE_FAIL=fails)

    assert answer["code"] == code
    assert answer["said"] == f"[iree_ffi] invoke: {words}\n"
    assert held["held"] == 4


@pytest.mark.parametrize(
    ("fails", "words", "held"),
    [
        ("register", "the drivers: register:1: INTERNAL; no drivers today", 0),
        ("device", "device 'cuda' (IREE_DEVICE): device:1: INTERNAL; no such card", 0),
        ("session", "iree_runtime_session_create: session:1: INTERNAL; no session today", 3),
        ("append", "the module does not load: append:1: INTERNAL; required module 'hal' version mismatch", 3),
        ("lookup", "the module's functions: lookup:1: INTERNAL; no such function", 3),
    ],
)
def test_a_session_that_can_not_be_made_leaves_nothing_and_says_the_same_again(
    iree: Child, pair: Path, fails: str, words: str, held: int
) -> None:
    first, second, left = iree(create(pair), create(pair), {"op": "held"}, FAKE_IREE_FAIL=fails)

    assert first == second == {"made": False, "said": f"[iree_ffi] {pair}: {words}\n"}
    assert left["held"] == held


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("", "IREE_DEVICE='' names no device; unset it for cuda, or say local-task for the CPU"),
        ("cud", "no HAL driver matching 'cud' (IREE_DEVICE); this shim was linked with: cuda, local-task"),
        ("cuda2", "no HAL driver matching 'cuda2' (IREE_DEVICE)"),
        ("Cuda", "no HAL driver matching 'Cuda' (IREE_DEVICE)"),
    ],
)
def test_another_device_is_refused_by_name(iree: Child, pair: Path, device: str, words: str) -> None:
    (answer,) = iree(create(pair), IREE_DEVICE=device)

    assert not answer["made"]
    assert words in answer["said"]


@pytest.mark.parametrize("device", ["local-task", "cuda://GPU-1", "cuda"])
def test_a_linked_device_may_say_which_one_of_it(iree: Child, pair: Path, device: str) -> None:
    assert iree(create(pair), IREE_DEVICE=device) == [{"made": True, "said": ""}]


@pytest.mark.parametrize("stem", STEMS)
def test_the_other_train_verbs_say_that_they_are_not_there(iree: Child, stem: str) -> None:
    verb = f"iree_ffi_train_step_{stem}"

    (answer,) = iree({"op": "verb", "name": verb})

    assert answer["code"] == 99
    assert answer["said"] == f"[iree_ffi] {verb}: not implemented by the IREE shim; use iree_ffi_invoke_f32\n"


# A step whose outputs the runtime in name only can make: it hands the inputs back, in their order.
STEP = "step|sync func @step(%input0: tensor<2xf32>, %input1: tensor<1xf32>, %input2: tensor<1x{y}>, %input3: tensor<f32>{t}) -> (%output0: tensor<2xf32>, %output1: tensor<f32>{bn})"
ADAM = {"t": ", %input4: tensor<f32>", "bn": ", %output2: tensor<1xf32>, %output3: tensor<1xf32>"}
ARGUMENTS: Json = {
    "op": "train",
    "session": 0,
    "fn": "step",
    "batch": 1,
    "extra": [],
    "lr": 0.5,
    "y_type": "i",
    "y": [2],
    "parameters": [{"dims": [2], "data": [3.0, 4.0]}],
    "x": {"dims": [1], "data": [7.0]},
}


def test_a_train_verb_hands_over_and_back(iree: Child, tmp_path: Path) -> None:
    path = vmfb(tmp_path / "step.vmfb", STEP.format(y="i32", t="", bn=""))

    _, answer, held = iree(create(path), ARGUMENTS | {"name": "generic", "bn": []}, {"op": "held"})

    assert (answer["code"], answer["packed"], answer["loss"]) == (0, [3.0, 4.0], 7.0), answer["said"]
    assert held["held"] == 4


def test_labels_go_to_the_device_as_integers(iree: Child, tmp_path: Path) -> None:
    """The third output is made of them, and has to be float32."""
    path = vmfb(tmp_path / "step.vmfb", STEP.format(y="i32", **ADAM))

    _, answer = iree(create(path), ARGUMENTS | {"name": "adam", "t": 1.0, "bn": [1]})

    assert answer["code"] == 4
    assert answer["said"] == "[iree_ffi] iree_ffi_train_step_adam: output 2: the device has no float32\n"


def test_labels_for_a_graph_without_classes_are_refused(iree: Child, tmp_path: Path) -> None:
    path = vmfb(tmp_path / "step.vmfb", STEP.format(y="f32", t="", bn=""))

    _, answer = iree(create(path), ARGUMENTS | {"name": "generic", "bn": []})

    assert answer["code"] == 1
    assert (
        "input 2 of @step: the module wants tensor<1xf32>, the caller gives tensor<1xi32>" in answer["said"]
    )


SANITIZED = """
#include <stdio.h>
#include <stdlib.h>
#include "iree_ffi.h"
int main(int argc, char **argv) {
  static const char *const fails[] = {"", "call", "upload", "push", "invoke", "pop", "download", "append"};
  const float a[6] = {1, 2, 3, 4, 5, 6}, b = 7;
  const float *in[] = {a, &b};
  float a_out[6], b_out, *out[] = {a_out, &b_out};
  const int32_t ranks[] = {2, 0};
  const int64_t dims[] = {2, 3}, totals[] = {6, 1};
  unsigned i;
  if (argc != 3) return 2;
  for (i = 0; i < sizeof fails / sizeof *fails; i++) {
    iree_ffi_session_t *session = iree_ffi_session_create(argv[1]);
    setenv("FAKE_IREE_FAIL", fails[i], 1);
    printf("%d ", iree_ffi_invoke_f32(session, "pair", 2, ranks, dims, in, 2, totals, out));
    if (iree_ffi_session_create(argv[2]) != NULL) return 3;
    iree_ffi_session_release(session);
    unsetenv("FAKE_IREE_FAIL");
  }
  return 0;
}
"""


def test_no_address_is_out_of_bounds_and_nothing_leaks(project: Path, pair: Path, tmp_path: Path) -> None:
    (tmp_path / "drive.c").write_text(SANITIZED)
    program, broken = tmp_path / "drive", vmfb(tmp_path / "broken.vmfb", "pair|sync func @pair(")
    sources = (tmp_path / "drive.c", "ffi/iree_ffi.c", FAKE / "fake_iree.c")
    flags = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Iffi", *LINE[:-1])
    build("gcc", *flags, *sources, "-o", program, cwd=project)

    done = run(program, pair, broken, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "0 3 2 2 3 4 4 0 "), done.stderr
    assert "Sanitizer" not in done.stderr
