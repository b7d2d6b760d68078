"""The CUDA libraries that an XLA plugin of a CUDA major looks for by name, and the packages that bring them. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaLibrary:
    """One library.

    :param soname: the name that is asked for; its number is the library's own, not always CUDA's.
    :param package: the requirement that brings it into the plugin's environment.
    :param needed: whether nothing trains without it; the others are for some programs only.
    """

    soname: str
    package: str
    needed: bool
    purpose: str = ""

    @property
    def stem(self) -> str:
        return self.soname.partition(".so")[0]


# Library, package without its suffix, the library's number under CUDA 12, 13 and later, what needs it.
_ROWS = (
    ("libcudart", "cuda-runtime", (12, 13), ""),
    ("libcublas", "cublas", (12, 13), ""),
    ("libcublasLt", "cublas", (12, 13), ""),
    ("libnvJitLink", "nvjitlink", (12, 13), ""),
    ("libcudnn", "cudnn", (9, 9), ""),
    ("libcufft", "cufft", (11, 12), "Fourier transforms"),
    ("libcusparse", "cusparse", (12, 12), "sparse tensors"),
    ("libcusolver", "cusolver", (11, 12), "decompositions"),
    ("libcupti", "cuda-cupti", (12, 13), "profiles"),
    ("libnccl", "nccl", (2, 2), "several cards in one program"),
)
_MAJORS = (12, 13)
_ALWAYS_SUFFIXED = ("cudnn", "nccl")  # their own versions say nothing of CUDA's


def cuda_libraries(major: int) -> tuple[CudaLibrary, ...]:
    """The libraries that a plugin for this CUDA asks for; none for a CUDA whose names are not known here."""
    if major not in _MAJORS:
        return ()
    column = _MAJORS.index(major)
    return tuple(
        CudaLibrary(
            soname=f"{stem}.so.{numbers[column]}",
            package=_package(name, major, numbers[column]),
            needed=not purpose,
            purpose=purpose,
        )
        for stem, name, numbers, purpose in _ROWS
    )


def overwritten(packages: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of packages that put other files under the same names: the one that came last has won."""
    return tuple(
        (f"nvidia-{name}-cu12", f"nvidia-{name}-cu13")
        for name in _ALWAYS_SUFFIXED
        if {f"nvidia-{name}-cu12", f"nvidia-{name}-cu13"} <= packages
    )


def _package(name: str, major: int, number: int) -> str:
    """From CUDA 13 on, the version of a package says what its name said before."""
    if major < 13 or name in _ALWAYS_SUFFIXED:  # noqa: PLR2004 - the boundary is the point
        return f"nvidia-{name}-cu{major}"
    return f"nvidia-{name}=={number}.*"
