"""What an IREE build tree has to be before a shim is linked from it. Pure: the facts come in, the faults go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

STEP = "Step 3"
TARGETS = "iree_runtime_unified flatcc_runtime flatcc_parsing"
UNIFIED = "runtime/src/iree/runtime/libiree_runtime_unified.a"
THIRD_PARTY = "build_tools/third_party"
ARCHIVES = (
    UNIFIED,
    f"{THIRD_PARTY}/flatcc/libflatcc_runtime.a",
    f"{THIRD_PARTY}/flatcc/libflatcc_parsing.a",
)
# CMake's words for a truth and for its opposite; anything else is a name.
_ON = {"ON", "TRUE", "YES", "Y", "1"}
_OFF = {"OFF", "FALSE", "NO", "N", "0", "", "IGNORE", "NOTFOUND"}
_SETTINGS = (
    ("IREE_HAL_DRIVER_CUDA", True, "the shim would have no driver for the card"),
    ("IREE_HAL_DRIVER_HIP", False, "a shim drives one kind of card"),
    ("BUILD_SHARED_LIBS", False, "the shim has to hold the runtime itself"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeFacts:
    """A checkout of IREE and its build tree.

    :param commit: what git says of the checkout; None if it does not know it.
    :param modified: whether git knows of changes to it; None if it does not know it.
    :param cache: `CMakeCache.txt` as names and values; None if there is none.
    :param archives: those of `ARCHIVES` that are there.
    :param header: whether the checkout has the runtime's header.
    """

    source: str
    build: str
    commit: str | None
    modified: bool | None
    cache: Mapping[str, str] | None
    archives: tuple[str, ...]
    header: bool


def read_cache(text: str) -> dict[str, str]:
    """The entries of a `CMakeCache.txt`: `NAME:TYPE=VALUE`, a line each; comments begin with `//` or `#`."""
    lines = (line for line in text.splitlines() if line and not line.startswith(("//", "#")))
    pairs = (line.partition("=") for line in lines)
    return {name.partition(":")[0].strip('"'): value.strip() for name, sign, value in pairs if sign}


def tree_faults(tree: TreeFacts) -> tuple[str, ...]:
    """Why no shim should be linked from this tree, each with its fix; none, if it is as Step 3 wants it."""
    if not tree.header:
        return (
            f"{STEP}: IREE_SRC={tree.source!r} has no runtime/src/iree/runtime/api.h; name a checkout of IREE",
        )
    if tree.cache is None:
        return (f"{STEP}: IREE_BUILD={tree.build!r} has no CMakeCache.txt; {configure(tree)}",)
    return (*_wrong_home(tree), *_wrong_settings(tree, tree.cache), *_wrong_archives(tree))


def commit_fault(tree: TreeFacts, compiler: str) -> str | None:
    """Why a runtime of this tree must not load what that compiler makes.

    :param compiler: the commit that `iree-compile --version` prints.
    """
    if tree.commit == compiler:
        return None
    is_of = f"is of commit {tree.commit}" if tree.commit else "is no checkout that git knows"
    return (
        f"{STEP}: IREE_SRC={tree.source!r} {is_of}, the compiler of {compiler}; "
        f"check out that commit, build it again ({rebuild(tree)}), then the shim"
    )


def configure(tree: TreeFacts) -> str:
    """The command that makes a build tree, in short; Step 3 has all of it."""
    return (
        f'configure it: `cmake -G Ninja -S "{tree.source}" -B "{tree.build}" -DIREE_HAL_DRIVER_CUDA=ON '
        "-DIREE_HAL_DRIVER_HIP=OFF -DBUILD_SHARED_LIBS=OFF ...`"
    )


def rebuild(tree: TreeFacts) -> str:
    """The command that brings a build tree up to date."""
    return f'`cmake --build "{tree.build}" --target {TARGETS}`'


def _wrong_home(tree: TreeFacts) -> tuple[str, ...]:
    home = (tree.cache or {}).get("CMAKE_HOME_DIRECTORY", tree.source)
    if home == tree.source:
        return ()
    fault = (
        f"{STEP}: IREE_BUILD={tree.build!r} was configured for the checkout {home!r}, not for "
        f"IREE_SRC={tree.source!r}; name the two that belong together"
    )
    return (fault,)


def _wrong_settings(tree: TreeFacts, cache: Mapping[str, str]) -> tuple[str, ...]:
    wrong = [
        _setting_fault(tree, name, cache.get(name), wanted, why)
        for name, wanted, why in _SETTINGS
        if truth(cache.get(name)) is not wanted
    ]
    allocator = cache.get("IREE_ALLOCATOR_SYSTEM", "libc")
    if allocator != "libc":
        wrong.append(
            f"{STEP}: IREE_ALLOCATOR_SYSTEM is {allocator!r} in {tree.build}/CMakeCache.txt, and the shim's line "
            "says iree_allocator_libc_ctl; configure with -DIREE_ALLOCATOR_SYSTEM=libc"
        )
    return tuple(wrong)


def _setting_fault(tree: TreeFacts, name: str, have: str | None, wanted: bool, why: str) -> str:  # noqa: FBT001 - a word of CMake
    said = "is not set" if have is None else f"is {have!r}"
    word = "ON" if wanted else "OFF"
    return (
        f"{STEP}: {name} {said} in {tree.build}/CMakeCache.txt ({why}); "
        f"configure with -D{name}={word} and build again: {rebuild(tree)}"
    )


def _wrong_archives(tree: TreeFacts) -> tuple[str, ...]:
    missing = [name for name in ARCHIVES if name not in tree.archives]
    if not missing:
        return ()
    return (f"{STEP}: IREE_BUILD={tree.build!r} lacks {', '.join(missing)}; build it: {rebuild(tree)}",)


def truth(value: str | None) -> bool | None:
    """What CMake makes of a value; an absent one is off, and None is a value that it takes for a name."""
    word = (value or "").upper()
    if word in _ON:
        return True
    return False if word in _OFF or word.endswith("-NOTFOUND") else None
