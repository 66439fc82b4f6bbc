"""Matrix products, written in cuTile, and compiled ahead of time."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["gemm"]


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    a, b = ctx.saved_tensors
    grad_a = ops.gemm(grad, b.t()) if ctx.needs_input_grad[0] else None
    grad_b = ops.gemm(a.t(), grad) if ctx.needs_input_grad[1] else None
    return grad_a, grad_b


torch.library.register_autograd(add_op_namespace_prefix("gemm"), _backward, setup_context=_save)


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply two matrices.

    Args:
        a: M x K elements of float16 or bfloat16 on a GPU, with any strides.
        b: K x N elements of the same dtype on the same GPU, with any strides.

    Returns:
        A new tensor of M x N elements. Sums are in float32. Operands whose rows start at multiples
        of 16 bytes are the fast ones.
    """
    return ops.gemm(a, b)
