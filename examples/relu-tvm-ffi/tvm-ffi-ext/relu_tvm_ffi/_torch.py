"""The kernel as operators of Torch: on the current stream, with gradients and ``torch.compile``."""

from __future__ import annotations

import torch
from torch import Tensor

from ._ops import module, torch_add_op_namespace_prefix, torch_register_op

__all__ = ["Tensor", "relu"]


def _relu(x: Tensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    module.relu(x, out)
    return out


def _relu_backward(grad: Tensor, x: Tensor) -> Tensor:
    x = x.contiguous()
    grad_x = torch.empty_like(x)
    module.relu_backward(grad.contiguous(), x, grad_x)
    return grad_x


def _relu_fake(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _relu_backward_fake(grad: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_forward_op = torch_register_op("relu(Tensor x) -> Tensor", _relu, fake=_relu_fake)
_backward_op = torch_register_op(
    "relu_backward(Tensor grad, Tensor x) -> Tensor", _relu_backward, fake=_relu_backward_fake
)
_out_op = torch_register_op("relu_out(Tensor x, Tensor(a!) out) -> ()", module.relu)


def _save_x(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])


def _relu_grad(ctx, grad):
    (x,) = ctx.saved_tensors
    return _backward_op(grad, x)


def _save_second_x(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[1])


def _relu_backward_grad(ctx, grad):
    (x,) = ctx.saved_tensors
    return _backward_op(grad, x), None


torch.library.register_autograd(
    torch_add_op_namespace_prefix("relu"), _relu_grad, setup_context=_save_x
)
torch.library.register_autograd(
    torch_add_op_namespace_prefix("relu_backward"),
    _relu_backward_grad,
    setup_context=_save_second_x,
)


def relu(x: Tensor, out: Tensor | None = None) -> Tensor:
    if out is None:
        return _forward_op(x)
    _out_op(x.contiguous(), out)
    return out
