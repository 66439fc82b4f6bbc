"""Functions of the PyPI package liger-kernel, captured at their launches."""

from . import liger_kernel

__all__ = ["liger_kernel"]
