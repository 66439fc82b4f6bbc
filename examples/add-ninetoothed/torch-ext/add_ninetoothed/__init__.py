"""Addition of float16 tensors; the kernel is written in NineToothed."""

from __future__ import annotations

import torch

from ._ops import ops

__all__ = ["add"]


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Add two tensors element by element.

    Args:
        x: A float16 tensor on a GPU. Vectors may have any stride; others are copied when they are
            not contiguous.
        y: The same shape.
        out: Where to write the sum of two vectors: the same shape and dtype.

    Returns:
        ``out``, or a new contiguous tensor.

    Raises:
        RuntimeError: The shapes differ, or a tensor is not one of those.
    """
    if x.shape != y.shape:
        raise RuntimeError(f"the shapes differ: {tuple(x.shape)} and {tuple(y.shape)}")
    if out is not None:
        ops.add_out(x, y, out)
        return out
    if x.dim() == 1:
        return ops.add(x, y)
    return ops.add(x.reshape(-1), y.reshape(-1)).reshape(x.shape)
