"""ReLU for every backend, with autograd and ``torch.compile``."""

from __future__ import annotations

import torch

from . import layers
from ._ops import add_op_namespace_prefix, ops

__all__ = ["layers", "relu"]


@torch.library.register_fake(add_op_namespace_prefix("relu"))
def _relu_fake(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.register_fake(add_op_namespace_prefix("relu_backward"))
def _relu_backward_fake(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.register_fake(add_op_namespace_prefix("relu_out"))
def _relu_out_fake(x: torch.Tensor, out: torch.Tensor) -> None:
    return None


def _save_x(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])


def _relu_grad(ctx, grad):
    (x,) = ctx.saved_tensors
    return ops.relu_backward(grad, x)


def _save_second_x(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[1])


def _relu_backward_grad(ctx, grad):
    (x,) = ctx.saved_tensors
    return ops.relu_backward(grad, x), None


torch.library.register_autograd(add_op_namespace_prefix("relu"), _relu_grad, setup_context=_save_x)
torch.library.register_autograd(
    add_op_namespace_prefix("relu_backward"),
    _relu_backward_grad,
    setup_context=_save_second_x,
)


def relu(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Replace every negative element by zero; NaN stays NaN.

    Args:
        x: A tensor of float32, float64, float16 or bfloat16, with any shape and strides.
        out: Where to write the result: same shape, dtype and device as ``x``, or ``x`` itself.
            Not differentiable.

    Returns:
        ``out``, or a new tensor with the layout of ``x``.
    """
    if out is None:
        return ops.relu(x)
    ops.relu_out(x, out)
    return out
