"""Matrix products, written in TileLang and compiled ahead of time."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["gemm"]


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    a, b = ctx.saved_tensors
    grad_a = gemm(grad, b.t()) if ctx.needs_input_grad[0] else None
    grad_b = gemm(a.t(), grad) if ctx.needs_input_grad[1] else None
    return grad_a, grad_b


torch.library.register_autograd(add_op_namespace_prefix("gemm"), _backward, setup_context=_save)


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply two matrices.

    Args:
        a: M x K elements of float16 or bfloat16 on a GPU; K is a multiple of 8. It is copied when
            it is not contiguous.
        b: K x N elements of the same dtype on the same GPU; N is a multiple of 8.

    Returns:
        A new tensor of M x N elements. Sums are in float32.

    Raises:
        RuntimeError: The shapes, dtypes or devices differ, or K or N is no multiple of 8.
    """
    if a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0] == 0:
        return a @ b  # zeros: there is nothing to copy
    return ops.gemm(_aligned(a), _aligned(b))


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """Contiguous, and at an address that is divisible by 16."""
    x = x.contiguous()
    return x.clone() if x.storage_offset() * x.element_size() % 16 else x
