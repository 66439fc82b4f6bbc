"""All-reduce, residual and RMS norm: what follows a row-parallel linear layer."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ._ops import add_op_namespace_prefix, ops

__all__ = ["all_reduce_rms_norm"]


@torch.library.register_fake(add_op_namespace_prefix("all_reduce_rms_norm"))
def _all_reduce_rms_norm_fake(
    partial: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    group_name: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    contiguous = torch.contiguous_format
    return (
        torch.empty_like(residual, memory_format=contiguous),
        torch.empty_like(residual, memory_format=contiguous),
    )


def all_reduce_rms_norm(
    partial: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    group: dist.ProcessGroup | str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum ``partial`` over a group's ranks, add ``residual``, normalise the last dimension.

    All ranks of the group must call it, with the same shapes. It is not differentiable.

    Args:
        partial: This rank's part of the sum: float32, float16 or bfloat16, of shape (..., hidden).
        residual: The same on all ranks; shape, dtype and device of ``partial``.
        weight: Factors of the norm, of shape (hidden).
        eps: Added to the mean of the squares.
        group: The process group or its name; default: all ranks.

    Returns:
        The normalised sum, and the sum with the residual, which is the next layer's ``residual``.
        Both are new, contiguous, and have the shape of ``residual``.
    """
    if not isinstance(group, str):
        group = (group or dist.group.WORLD).group_name
    return ops.all_reduce_rms_norm(partial, residual, weight, eps, group)
