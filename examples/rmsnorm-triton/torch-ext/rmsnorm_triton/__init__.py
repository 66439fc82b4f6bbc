"""RMS normalisation, written in Triton and compiled ahead of time."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["rmsnorm"]


def _save(ctx, inputs, output) -> None:
    x, weight, eps = inputs
    ctx.save_for_backward(x, weight)
    ctx.eps = eps


def _backward(ctx, grad):
    x, weight = ctx.saved_tensors
    scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + ctx.eps)
    normal, wide = x.float() * scale, grad.float()
    grad_weight = (wide * normal).reshape(-1, x.shape[-1]).sum(0)
    inner = wide * weight.float()
    grad_x = scale * (inner - normal * (inner * normal).mean(-1, keepdim=True))
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype), None


torch.library.register_autograd(add_op_namespace_prefix("rmsnorm"), _backward, setup_context=_save)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Divide each row by its root mean square, and multiply it by ``weight``.

    Args:
        x: A tensor of float16, bfloat16 or float32 on a GPU, of any shape; rows are its last
            dimension. It is copied when it is not contiguous.
        weight: As many elements as a row has, of the same dtype.
        eps: Added to the mean square.

    Returns:
        A new, contiguous tensor with the shape and dtype of ``x``. Sums are in float32.
    """
    return ops.rmsnorm(x.contiguous(), weight.contiguous(), eps)
