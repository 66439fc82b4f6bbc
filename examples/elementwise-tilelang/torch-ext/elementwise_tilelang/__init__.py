"""Sums and products of tensors; the kernels are written in TileLang."""

from __future__ import annotations

import torch

from ._ops import ops

__all__ = ["add", "add_bias", "mul"]


def add(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
    """Compute ``x + alpha * y``.

    Args:
        x: A float32 tensor on the CPU or a GPU.
        y: The same shape, dtype and device.
        alpha: What ``y`` is multiplied by.

    Raises:
        RuntimeError: The shapes, dtypes or devices differ.
    """
    return ops.add(x.contiguous(), y.contiguous(), alpha=alpha)


def mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute ``x * y``; see `add` for what they may be."""
    return ops.mul(x.contiguous(), y.contiguous())


def add_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute ``x + bias``.

    Args:
        x: A float32 matrix with 256 or 1024 columns, on the CPU or a GPU.
        bias: One float32 value for each column.

    Raises:
        RuntimeError: There is no code for so many columns, or shapes, dtypes or devices differ.
    """
    return ops.add_bias(x.contiguous(), bias.contiguous())
