"""Functions of the PyPI package liger-kernel, captured."""

from ._ops import ops

__all__ = ["ops"]
