"""A matrix product of one size; the kernel is written in NineToothed."""

from __future__ import annotations

import torch

from ._ops import ops

__all__ = ["SIZE", "mm"]

SIZE = 512
"""Rows and columns of every matrix."""


def mm(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """Multiply two matrices of 512 x 512.

    Args:
        lhs: float16 or bfloat16, on a GPU, with any strides.
        rhs: The same dtype and device, with any strides.

    Returns:
        ``lhs @ rhs``, summed up in float32, as a new matrix.

    Raises:
        RuntimeError: A matrix is not one of those.
    """
    return ops.mm(lhs, rhs)
