"""Binding a shim, and what its answers become."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytest_cudaboot.errors import ShimError, SignatureError, ToolMissingError, UnsupportedError, UsageError
from pytest_cudaboot.lowerers import shim
from pytest_cudaboot.lowerers.base import Array, LowererConfig, make_lowerer
from pytest_cudaboot.lowerers.xla import SEND, Loop, XlaLowerer, XlaSession
from pytest_cudaboot.rules.shim_symbols import REQUIRED

Build = Callable[..., Path]


@pytest.fixture
def session(fake_shim: Path, artifact: Path) -> XlaSession:
    return XlaLowerer(configured(fake_shim)).open_session(artifact)


def configured(path: Path) -> LowererConfig:
    return LowererConfig(name="xla", platform="cpu", shim=str(path))


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def test_each_of_the_ten_required_symbols_has_its_prototype() -> None:
    assert tuple(shim.PROTOTYPES) == REQUIRED
    assert len(REQUIRED) == 10


def test_only_extras_that_are_there_are_bound(fake_shim: Path, build_fake: Build) -> None:
    assert shim.bind(build_fake()).extras == {"pjrt_ffi_marker"}
    assert shim.bind(fake_shim).extras == {"pjrt_ffi_marker", "pjrt_ffi_invoke_f32_dp", "pjrt_ffi_describe"}


def test_a_missing_shim_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match=r"no shim '/.*/gone.so'; build it"):
        shim.bind(tmp_path / "gone.so")


def test_a_file_that_is_no_library_is_refused_in_the_loaders_words(artifact: Path) -> None:
    with pytest.raises(
        ShimError, match=r"twice.mlir can not be loaded: .*(invalid ELF header|file too short)"
    ):
        shim.bind(artifact)


def test_a_stale_shim_is_refused_by_file_and_symbol(build_fake: Build) -> None:
    stale = build_fake("-DSTALE")

    with pytest.raises(
        ShimError, match=rf"{stale} is not a usable shim: it lacks iree_ffi_train_step_adam_yolov1;"
    ):
        shim.bind(stale)


def test_a_shim_without_the_marker_is_not_xla(build_fake: Build) -> None:
    with pytest.raises(ShimError, match="lacks pjrt_ffi_marker: it is not the XLA shim"):
        XlaLowerer(configured(build_fake("-DNO_MARKER")))


def test_outputs_have_the_signatures_shapes(session: XlaSession) -> None:
    made = session.invoke("twice", [ones(2, 3), np.float32(5)])  # type: ignore[list-item]

    assert [(array.shape, str(array.dtype)) for array in made] == [((2, 3), "float32"), ((), "float32")]
    assert (made[0].sum(), float(made[1])) == (12, 10)


@pytest.mark.parametrize("view", ["transposed", "strided"])
def test_any_memory_order_is_sent_row_by_row(session: XlaSession, view: str) -> None:
    whole = np.arange(12, dtype=np.float32)
    sent = whole[::2] if view == "strided" else whole[:6].reshape(3, 2).T

    assert session.invoke("twice", [sent, ones()], [sent.shape])[0].tolist() == (2 * sent).tolist()


def test_what_the_shim_did_not_write_is_not_a_number(session: XlaSession) -> None:
    made = session.invoke("twice", [ones(2, 3)])

    assert np.isnan(made[1])


def test_other_outputs_may_be_asked_for(session: XlaSession) -> None:
    assert [array.shape for array in session.invoke("twice", [ones(2, 3)], [(6,)])] == [(6,)]


def test_another_element_type_can_not_be_sent(session: XlaSession) -> None:
    with pytest.raises(SignatureError, match=r"input 1 is float64 \(2,\); the ABI carries float32 only"):
        session.invoke("twice", [ones(2, 3), np.ones(2)])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("code", "word"), [(1, "guard"), (3, "execute"), (4, "device to host"), (7, "not a code")]
)
def test_a_code_becomes_an_error_with_its_meaning(session: XlaSession, code: int, word: str) -> None:
    with pytest.raises(
        ShimError, match=rf"iree_ffi_invoke_f32 of 'code{code}' returned {code} \({word}"
    ) as caught:
        session.invoke(f"code{code}", [])

    assert (caught.value.code, type(caught.value)) == (code, ShimError)


def test_99_is_unsupported(session: XlaSession) -> None:
    with pytest.raises(UnsupportedError, match=r"returned 99 \(not implemented\)") as caught:
        session.invoke("unsupported", [])

    assert caught.value.code == 99


def test_after_close_the_shim_is_given_null_to_refuse(session: XlaSession) -> None:
    session.close()
    session.close()

    with pytest.raises(ShimError, match="returned 1"):
        session.invoke("twice", [ones(2, 3), ones()])


def test_a_session_that_is_not_made_is_an_error(fake_shim: Path, tmp_path: Path) -> None:
    with pytest.raises(ShimError, match=r"made no session of '/.*/gone.mlir'"):
        XlaLowerer(configured(fake_shim)).open_session(tmp_path / "gone.mlir")


def test_an_artifact_without_a_signature_is_refused_and_released(
    fake_shim: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.mlir").write_text("module @m {}")
    with pytest.raises(SignatureError, match=r"no func.func"):
        XlaLowerer(configured(fake_shim)).open_session(tmp_path / "empty.mlir")

    assert capfd.readouterr().err == "released after 0 calls\n"


def test_the_signature_may_come_from_another_text(fake_shim: Path, artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "twice.vmfb").write_bytes(b"compiled")
    made = XlaLowerer(configured(fake_shim)).open_session(tmp_path / "twice.vmfb", artifact)

    assert made.signature.entry == "twice"


def test_replicas_and_mask_reach_the_shim(session: XlaSession) -> None:
    made = session.invoke_dp("twice", 3, [ones(3), ones()], [True, False], [(2,)])

    assert made[0].tolist() == [3, 10]


def test_a_mask_that_c_would_read_beyond_is_refused(session: XlaSession) -> None:
    with pytest.raises(SignatureError, match="shard has 1 entries; there are 2 inputs"):
        session.invoke_dp("twice", 3, [ones(3), ones()], [True], [(2,)])


def test_replicas_without_the_symbol_are_unsupported(build_fake: Build, artifact: Path) -> None:
    bare = XlaLowerer(configured(build_fake())).open_session(artifact)

    with pytest.raises(UnsupportedError, match="does not have pjrt_ffi_invoke_f32_dp"):
        bare.invoke_dp("twice", 2, [], [])


def test_residency_without_the_symbols_is_unsupported(session: XlaSession) -> None:
    with pytest.raises(UnsupportedError, match="does not have pjrt_ffi_invoke_f32_resident_v2"):
        session.invoke_resident("twice", [ones(3)], (0, 0, 1))
    with pytest.raises(UnsupportedError, match="does not have pjrt_ffi_resident_read"):
        session.resident_read(3)
    with pytest.raises(UnsupportedError, match="does not have pjrt_ffi_step_f32_v1"):
        session.step("twice", [ones(3)], Loop(roles=[SEND]))
    with pytest.raises(UnsupportedError, match="does not have pjrt_ffi_flush_v1"):
        session.flush()


def test_facts_tell_what_loaded(fake_shim: Path) -> None:
    facts = XlaLowerer(configured(fake_shim)).facts()

    assert (facts["name"], facts["platform"], facts["shim"]) == ("xla", "cpu", str(fake_shim))
    assert facts["describe"] == {"plugin": "none", "devices": 4}
    assert str(fake_shim) in facts["mapped"]["libfake.so"]


def test_a_shim_that_tells_nothing_has_no_description(build_fake: Build) -> None:
    assert XlaLowerer(configured(build_fake())).facts()["describe"] == {}


def test_a_shim_without_a_client_does_not_describe_one(
    fake_shim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SHIM_NO_CLIENT", "1")

    with pytest.raises(ShimError, match=r"pjrt_ffi_describe returned 1 \(guard\)"):
        XlaLowerer(configured(fake_shim)).facts()


def test_an_unknown_lowerer_lists_the_known() -> None:
    with pytest.raises(UsageError, match="no lowerer 'tpu'; there are: xla"):
        make_lowerer(LowererConfig(name="tpu", platform="cpu", shim=""))


def test_a_lowerer_of_a_third_party_is_named_by_module_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rocm_lowerer.py").write_text(
        "class Rocm:\n    def __init__(self, config): self.got = config\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    third = LowererConfig(name="rocm", platform="rocm", shim="", implementation="rocm_lowerer:Rocm")

    assert vars(make_lowerer(third)) == {"got": third}
