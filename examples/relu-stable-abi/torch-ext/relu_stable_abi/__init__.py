"""ReLU on Torch's stable ABI, with autograd and ``torch.compile``."""

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


def relu(x: torch.Tensor) -> torch.Tensor:
    """Replace every negative element by zero; NaN stays NaN.

    Args:
        x: A tensor of float32, float64, float16 or bfloat16, with any shape and strides.

    Returns:
        A new tensor with the layout of ``x``.
    """
    return ops.relu(x)
