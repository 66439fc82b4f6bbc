"""Addition of tensors; the kernel is written in CuTe DSL."""

from __future__ import annotations

import torch

from ._ops import ops

__all__ = ["add"]


def add(
    x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1.0, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute ``x + alpha * y``.

    Args:
        x: A float32, float16 or bfloat16 tensor on a GPU. It is copied when it is neither contiguous
            nor a matrix.
        y: The same shape and dtype.
        alpha: What ``y`` is multiplied by.
        out: Where to write the sum: a matrix with any strides, of the same shape and dtype.

    Returns:
        ``out``, or a new contiguous tensor. It is rounded once, from float32.

    Raises:
        RuntimeError: The shapes, dtypes or devices differ, or a tensor is not one of those.
    """
    if out is None and x.is_contiguous() and y.is_contiguous():
        return ops.add(x, y, alpha=alpha)
    if x.dim() != 2:
        if out is not None:
            raise RuntimeError(f"`out` must be a matrix, not of shape {tuple(out.shape)}")
        return ops.add(x.contiguous(), y.contiguous(), alpha=alpha)
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    ops.add_strided(x, y, out, alpha=alpha)
    return out
