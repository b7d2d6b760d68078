"""pytest-cudaboot: a GPU toolchain's bring-up document as a merge gate."""

__version__ = "0.1.0"
