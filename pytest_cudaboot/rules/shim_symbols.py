"""What the symbols of a shim say of it: whether it is whole, which card it drives, whether it is stale. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

STEP = "Step 3"
REQUIRED = (
    "iree_ffi_session_create",
    "iree_ffi_session_release",
    "iree_ffi_invoke_f32",
    "iree_ffi_train_step_mlp",
    "iree_ffi_train_step_generic",
    "iree_ffi_train_step_adam",
    "iree_ffi_train_step_adam_seg",
    "iree_ffi_train_step_adam_softlabel",
    "iree_ffi_train_step_adam_ddpm",
    "iree_ffi_train_step_adam_yolov1",
)
_DRIVER = re.compile(r"iree_hal_(\w+)_driver_module_register")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_NAME = r"\b((?:iree|pjrt)_ffi_\w+)\s*\("
# A head that begins its line and, unlike a call or a declaration, is followed by a body.
_DEFINITION = re.compile(rf"^[A-Za-z_][\w \t*]*?{_NAME}[^;{{}}]*\)\s*\{{", re.MULTILINE)
_DECLARATION = re.compile(rf"^[A-Za-z_][\w \t*]*?{_NAME}[^;{{}}]*\)\s*;", re.MULTILINE)


def missing(exported: Collection[str]) -> tuple[str, ...]:
    """Those of the ten that a library does not export."""
    return tuple(name for name in REQUIRED if name not in exported)


def stale_fault(name: str, exported: Collection[str], rebuild: str) -> str | None:
    """Why a library can not be driven; the words end in the command that cures it.

    :param rebuild: the command that builds it.
    """
    lacking = missing(exported)
    if not lacking:
        return None
    return f"{STEP}: {name} is stale: it lacks {', '.join(lacking)}; rebuild it: {rebuild}"


def drivers(symbols: Iterable[tuple[str, str]] | None) -> frozenset[str] | None:
    """The HAL drivers that are linked in, such as `cuda` and `local_task`; None if the symbols were stripped.

    :param symbols: pairs of name and `nm`'s letter; a driver may be local (`t`) or global (`T`).
    """
    if symbols is None:
        return None
    found = (_DRIVER.fullmatch(name) for name, letter in symbols if letter in "tT")
    return frozenset(match[1] for match in found if match)


def driver_fault(name: str, found: Collection[str] | None, rebuild: str) -> str | None:
    """Why a library does not drive a CUDA card, as far as its symbols tell.

    :param found: from :func:`drivers`; None says nothing, so it is no fault.
    """
    if found is None or "cuda" in found:
        return None
    have = ", ".join(sorted(found)) or "none"
    cause = (
        "built with -DUSE_HIP, or from a tree with HIP on" if "hip" in found else "from a tree with CUDA off"
    )
    return (
        f"{STEP}: {name} has no iree_hal_cuda_driver_module_register; its HAL drivers: {have} ({cause}?); "
        f"rebuild it from a tree with IREE_HAL_DRIVER_CUDA=ON: {rebuild}"
    )


def undecidable(name: str) -> str:
    """What is to be said of a stripped library, of which nobody can tell."""
    return f"undecidable: {name} is stripped, and a HAL driver is a local symbol; keep the symbols"


def declared(header: str) -> frozenset[str]:
    """The ABI's functions that a header declares."""
    return frozenset(_DECLARATION.findall(_COMMENT.sub("", header)))


def defined(sources: Iterable[str]) -> frozenset[str]:
    """The ABI's functions that C sources define, as opposed to call."""
    return frozenset(name for text in sources for name in _DEFINITION.findall(_COMMENT.sub("", text)))


def included(name: str, texts: dict[str, str]) -> frozenset[str]:
    """The files of one translation unit, by their `#include "..."`, among those given."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in texts and current not in seen:
            seen.add(current)
            waiting += re.findall(r'^#include "([^"]+)"', texts[current], re.MULTILINE)
    return frozenset(seen)
